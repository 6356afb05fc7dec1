from rest_framework import serializers

from identity_platform.api.display_name import DisplayName
from identity_platform.api.fields import Choice, Text
from identity_platform.api.url_field import HttpUrl
from tenants.entering.lookup import TenantContext
from userflow.branding.colors import COLOR
from userflow.branding.logos import LARGEST, TOO_LARGE
from userflow.branding.models import Branding
from userflow.branding.texts import FOOTER, HEADING, INTRO, LANGUAGES, LONGEST

# Base64 writes three bytes as four characters. The action checks the bytes.
_LONGEST_LOGO = (LARGEST * 4 // 3 + 8) * 2
_LINKS = ("terms_url", "privacy_url", "support_url")


class HttpsUrl(HttpUrl):
    """An absolute https URL."""

    default_error_messages = {"invalid": "Send an absolute https URL such as https://example.com/terms."}

    def to_internal_value(self, data: object) -> str:
        url = super().to_internal_value(data)
        if not url.lower().startswith("https://"):
            self.fail("invalid")
        return url

    def openapi(self) -> dict[str, object]:
        schema = super().openapi()
        return {**schema, "pattern": str(schema["pattern"]).replace("[Hh][Tt][Tt][Pp][Ss]?", "[Hh][Tt][Tt][Pp][Ss]")}


def _text(most: int, help_text: str, *, single_line: bool = True) -> Text:
    return Text(
        max_length=most,
        trim=True,
        single_line=single_line,
        required=False,
        allow_null=True,
        help_text=help_text,
    )


class LanguageTextsIn(serializers.Serializer[object]):
    signin_heading = _text(LONGEST[HEADING], "Heading of the sign-in page.")
    signin_intro = _text(LONGEST[INTRO], "Text below that heading.", single_line=False)
    mail_footer = _text(LONGEST[FOOTER], "End of every mail.", single_line=False)


class BrandingTextsIn(serializers.Serializer[object]):
    en = LanguageTextsIn(required=False, allow_null=True)
    de = LanguageTextsIn(required=False, allow_null=True)
    fr = LanguageTextsIn(required=False, allow_null=True)
    es = LanguageTextsIn(required=False, allow_null=True)


def _shown_name(help_text: str) -> DisplayName:
    return DisplayName(
        max_length=64,
        trim=True,
        required=False,
        allow_null=True,
        help_text=f"{help_text} Without `@`, `://` and invisible characters: mails show it as their sender.",
    )


def _link(help_text: str) -> HttpsUrl:
    return HttpsUrl(required=False, allow_null=True, help_text=help_text)


class BrandingChanges(serializers.Serializer[object]):
    name = _shown_name("Name shown on hosted pages and in mails; null: the setting `issuer_name`.")
    logo = Text(
        max_length=_LONGEST_LOGO,
        error_messages={"max_length": TOO_LARGE},
        required=False,
        allow_null=True,
        help_text="A PNG, JPEG or WebP image of at most 200 KB and 2000 x 2000 pixels in base64; null: no logo.",
    )
    color_light = _text(
        7, f"Accent color on light surfaces, `{COLOR}`, with a contrast of at least 4.5:1; null: default."
    )
    color_dark = _text(
        7, f"Accent color on dark surfaces, `{COLOR}`, with a contrast of at least 4.5:1; null: default."
    )
    terms_url = _link("Terms of service; null: no link.")
    privacy_url = _link("Privacy policy; null: no link.")
    support_url = _link("Help for end users; null: no link.")
    sender_name = _shown_name("Name of the sender of mails; null: the name shown.")
    language = Choice(
        LANGUAGES,
        required=False,
        allow_null=True,
        help_text="Language of mails that no page has caused; null: the caller's.",
    )
    texts = BrandingTextsIn(
        required=False,
        allow_null=True,
        help_text="Own texts by language. A language sent is replaced as a whole; null: none.",
    )


class LanguageTextsOut(serializers.Serializer[object]):
    signin_heading = serializers.CharField(required=False)
    signin_intro = serializers.CharField(required=False)
    mail_footer = serializers.CharField(required=False)


class BrandingTextsOut(serializers.Serializer[object]):
    en = LanguageTextsOut(required=False)
    de = LanguageTextsOut(required=False)
    fr = LanguageTextsOut(required=False)
    es = LanguageTextsOut(required=False)


class BrandingOut(serializers.Serializer[object]):
    tenant_id = serializers.UUIDField()
    name = serializers.CharField(
        allow_null=True, help_text="Name shown on hosted pages and in mails; null: the setting `issuer_name`."
    )
    logo_url = serializers.URLField(allow_null=True, help_text="Changes with the image, so it can be cached for ever.")
    color_light = serializers.CharField(allow_null=True)
    color_dark = serializers.CharField(allow_null=True)
    terms_url = serializers.CharField(allow_null=True)
    privacy_url = serializers.CharField(allow_null=True)
    support_url = serializers.CharField(allow_null=True)
    sender_name = serializers.CharField(allow_null=True)
    language = serializers.ChoiceField(LANGUAGES, allow_null=True)
    texts = BrandingTextsOut()


def record(tenant: TenantContext, branding: Branding) -> dict[str, object]:
    """Return the branding as the API shows it; null for what is not set."""
    plain = ("name", "color_light", "color_dark", *_LINKS, "sender_name", "language")
    return {
        "tenant_id": tenant.tenant_id,
        "logo_url": f"{tenant.root}/logo?v={branding.logo_digest}" if branding.logo_digest else None,
        **{name: getattr(branding, name) or None for name in plain},
        "texts": branding.texts,
    }
