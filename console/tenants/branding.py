"""The branding of the chosen tenant as a form, with a preview of its sign-in page."""

import base64
import secrets
from typing import Final, cast

from django import forms
from django.core.exceptions import PermissionDenied
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import INPUT_CLASSES

from console.frame.access import Context
from console.frame.confirm import TenantConfirmView
from console.frame.forms import ApiForm, Line, Paragraph, Pick, Tick
from console.frame.records import Text
from console.frame.tenant_pages import reading_purpose
from identity_platform.api.errors import ApiError
from identity_platform.api.handlers import note_rejection
from tenants.entering import lookup
from userflow.branding.brand import brand_of
from userflow.branding.colors import DARK, LIGHT
from userflow.branding.models import Texts
from userflow.branding.reading import find_logo
from userflow.branding.texts import FOOTER, HEADING, INTRO, LANGUAGES, LONGEST
from userflow.credentials import attempts
from userflow.errors import TooManyFromAddress
from userflow.sessions.assurance import Action
from userflow.tenants.branding import apply_changes, checked_changes, read_branding, update_branding
from userflow.tenants.branding_serializers import BrandingChanges

_NAMES: Final = {"en": _("English"), "de": _("German"), "fr": _("French"), "es": _("Spanish")}
_LABELS: Final = {HEADING: _("Sign-in heading"), INTRO: _("Sign-in text"), FOOTER: _("Mail footer")}
_PLAIN: Final = (
    "name",
    "color_light",
    "color_dark",
    "terms_url",
    "privacy_url",
    "support_url",
    "sender_name",
    "language",
)


def _text_field(language: str, name: str) -> str:
    return f"text_{language}_{name}"


def _shown_texts(texts: Texts) -> Texts:
    """Return the texts that are not empty, of every language."""
    texts_by_language = {language: texts.get(language) or {} for language in LANGUAGES}
    return {
        language: {name: text for name, text in texts_of_language.items() if text}
        for language, texts_of_language in texts_by_language.items()
    }


class BrandingForm(ApiForm):
    """What `PATCH …/branding` takes. An empty field is the platform's default."""

    serializer = BrandingChanges

    name = Line(label=_("Name shown"), required=False, help_text=_("On hosted pages and in mails."))
    logo = forms.FileField(
        label=_("Logo"),
        required=False,
        help_text=_("PNG, JPEG or WebP, at most 200 KB and 2000 x 2000 pixels."),
        widget=forms.FileInput({"accept": "image/png,image/jpeg,image/webp", "class": " ".join(INPUT_CLASSES)}),
    )
    remove_logo = Tick(label=_("Remove the logo"))
    color_light = Line(
        label=_("Color on light surfaces"),
        required=False,
        help_text=_("Of links and buttons, as #rrggbb."),
        widget=Line.widget({"placeholder": LIGHT.default}),
    )
    color_dark = Line(
        label=_("Color on dark surfaces"), required=False, widget=Line.widget({"placeholder": DARK.default})
    )
    terms_url = Line(label=_("Terms (URL)"), required=False)
    privacy_url = Line(label=_("Privacy policy (URL)"), required=False)
    support_url = Line(label=_("Support (URL)"), required=False)
    sender_name = Line(label=_("Sender of mails"), required=False, help_text=_("The address is the platform's."))
    language = Pick(
        label=_("Language of mails"),
        required=False,
        help_text=_("If no page has caused them."),
        choices=[("", _("Language of the request")), *_NAMES.items()],
    )
    preview_language = Pick(label=_("Language of the preview"), required=False, choices=list(_NAMES.items()))

    field_order = None

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # the options of a form
        preview = self.fields.pop("preview_language")
        for language, title in _NAMES.items():
            for name, label in _LABELS.items():
                kind = Line if name == HEADING else Paragraph
                field = kind(label=f"{label} ({title})", required=False, max_length=LONGEST[name])
                self.fields[_text_field(language, name)] = field
        self.fields["preview_language"] = preview

    def body(self) -> Context:
        data = self.cleaned_data
        texts = {
            language: {name: data.get(_text_field(language, name)) or None for name in _LABELS}
            for language in LANGUAGES
        }
        body: Context = {**{name: data.get(name) or None for name in _PLAIN}, "texts": texts}
        logo = data.get("logo")
        if isinstance(logo, UploadedFile):
            body["logo"] = base64.b64encode(logo.read()).decode()
        elif data.get("remove_logo"):
            body["logo"] = None
        return body

    def clean(self) -> Context:
        cleaned_data = super().clean()
        return (
            cleaned_data if self.errors else {**cleaned_data, "texts": _shown_texts(cast(Texts, cleaned_data["texts"]))}
        )


class BrandingPage(TenantConfirmView):
    """Change the branding, by the action behind `PATCH /uflow/admin/tenants/<id>/branding`."""

    permissions = ("admins:write",)
    action: Action | None = Action.CHANGE_TENANT_SETTINGS
    title = _("Branding of %(tenant)s")
    text = _("How the hosted pages and mails of the tenant look. An empty field uses the default of the platform.")
    submit = _("Save")
    dangerous = False
    done = _("The branding is saved. Pages show it from now on.")
    form_class = BrandingForm
    checks_locked_row = True
    call = staticmethod(update_branding)
    template_name = "console/tenants/branding.html"

    def run(self) -> HttpResponse:
        """As over the API, operators need the permission to change tenants too."""
        if self.staff.is_operator and not self.staff.may("tenants:write"):
            raise PermissionDenied(gettext("You need the permission tenants:write."))
        return super().run()

    def load(self) -> None:
        self.branding = read_branding(tenant_id=self.tenant.pk, purpose=reading_purpose(self.request))

    def get_back_url(self) -> str:
        return reverse("admin:tenants_tenant_change", args=[self.tenant.pk])

    def get_success_url(self) -> str:
        return reverse("admin:branding")

    def get_initial(self) -> Context:
        branding = self.branding
        texts = {
            _text_field(language, name): text for language, by in branding.texts.items() for name, text in by.items()
        }
        plain = {name: getattr(branding, name) or None for name in _PLAIN}
        return {**plain, **texts, "logo": branding.logo_digest, "texts": _shown_texts(branding.texts)}

    def act(self, form: forms.Form) -> Text:
        changes = self.changed_fields(form)
        if not changes:
            return gettext("Nothing was changed.")
        self.call_action(changes=changes)
        return self.done

    def get_context_data(self, **kwargs: object) -> Context:
        return {**super().get_context_data(**kwargs), "preview": reverse("admin:branding_preview")}


class _PreviewedForm(forms.Form):
    """The first form of the sign-in page."""

    email = forms.EmailField(widget=forms.EmailInput({"autocomplete": "off"}))


class BrandingPreview(BrandingPage):
    """The sign-in page with values that are not saved, in a frame of the form. It saves nothing, so it needs no proof."""

    action = None

    def run(self) -> HttpResponse:
        """Respond before the tenant is entered to a caller over the limit: a preview can decode an image."""
        try:
            attempts.limit_address("preview")
        except TooManyFromAddress as error:
            note_rejection(self.request, error)
            response = HttpResponse(error.text, "text/plain; charset=utf-8", status=error.status, headers=error.headers)
            return _framed(response)
        return super().run()

    def get(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        """Show what is stored."""
        return self._page([])

    def form_valid(self, form: forms.Form) -> HttpResponse:
        try:
            checked = checked_changes(self.changed_fields(form))
        except ApiError as error:
            note_rejection(self.request, error)
            return self._page([text for texts in error.messages.values() for text in texts], status=400)
        apply_changes(self.branding, checked)
        language = form.data.get("preview_language", "")
        return self._page([], language=language if language in LANGUAGES else LANGUAGES[0], logo=checked.get("logo"))

    def form_invalid(self, form: forms.Form) -> HttpResponse:
        return self._page([str(text) for texts in form.errors.values() for text in texts], status=400)

    def _page(
        self, problems: list[str], *, language: str = "en", logo: bytes | None = None, status: int = 200
    ) -> HttpResponse:
        nonce, branding = secrets.token_urlsafe(16), self.branding
        if logo is None and branding.logo_digest and (stored_logo := find_logo()) is not None:
            # Not by its address: the tenant may have a sign-in domain, which the frame's policy does not allow.
            logo = stored_logo[0]
        address = f"data:{branding.logo_type};base64,{base64.b64encode(logo).decode()}" if logo else ""
        with translation.override(language):
            form = _PreviewedForm()
            form.fields["email"].label = gettext("E-mail address")
            context = {
                "title": gettext("Sign in"),
                "nonce": nonce,
                "language": language,
                "brand": brand_of(lookup.find(self.tenant.pk), branding, language, logo=address),
                "form": form,
                "problems": problems,
            }
            template = "console/tenants/branding_problems.html" if problems else "openid/sign_in.html"
            response = render(self.request, template, context, status=status)
        return _framed(response, f"style-src 'nonce-{nonce}'; img-src 'self' data:; ")


def _framed(response: HttpResponse, sources: str = "") -> HttpResponse:
    """Set the headers of what the form shows in a frame: nothing runs in it, and only the console can frame it."""
    response.headers["Content-Security-Policy"] = (
        f"default-src 'none'; {sources}form-action 'none'; frame-ancestors 'self'; base-uri 'none'"
    )
    response.headers["X-Frame-Options"] = "SAMEORIGIN"
    response.headers["Cache-Control"] = "no-store"
    return response
