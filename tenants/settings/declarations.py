"""The settings of a tenant: one declaration each. `values` validates them.

The API document and the console's form are made from the declarations; a test compares the table in
`docs/operating-tenants.md`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypedDict

from django.conf import settings as platform
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from identity_platform.api.display_name import DisplayName
from identity_platform.api.fields import Boolean, Choice, Integer, StrictField
from identity_platform.authorities import LONGEST_PEM
from tenants.settings.page_addresses import PageAddress
from tenants.settings.profile_claims import ProfileClaims
from tenants.settings.resource_names import ResourceNames
from tenants.settings.setting_fields import (
    COUNTRY,
    HOSTNAME,
    ORIGIN,
    REGION,
    Certificates,
    DistinctItems,
    claim_names,
    page_address,
)

# NIST SP 800-63B section 5.1.1.2.
SHORTEST_PASSWORD: Final = 8
# A retired signing key verifies for this long after its last signature.
LONGEST_ACCESS_TOKEN_SECONDS: Final = 86_400
LONGEST_REMEMBERED_DAYS: Final = 30


class EffectiveSettings(TypedDict):
    """The values that apply in a tenant: its own, else the defaults."""

    issuer_name: str
    mfa_policy: str
    remember_device_days: int
    enrollment_mode: str
    password_min_length: int
    self_registration: bool
    account_deletion: str
    email_verification: str
    access_token_seconds: int
    refresh_token_seconds: int
    session_seconds: int
    admin_session_idle_seconds: int
    admin_session_seconds: int
    webauthn_rp_id: str | None
    webauthn_origins: list[str]
    password_reset_url: str
    email_verification_url: str
    invitation_url: str
    app_metadata_claims: list[str]
    external_id_claim: bool
    metadata_claims: list[str]
    profile_claims: list[str]
    resource_names: list[str]
    sms_countries: list[str] | None
    region: str | None
    outbound_authorities: str | None


class Default(NamedTuple):
    """The value that applies while the tenant has not set one."""

    # Takes what the tenant has set, the tenant's name and its location.
    of: Callable[[Mapping[str, object], str, PageAddress], object]
    text: str


def _fixed(value: object) -> Default:
    return Default(
        lambda _settings, _name, _location: value, f"`{value if isinstance(value, str) else json.dumps(value)}`"
    )


def _platform(variable: str) -> Default:
    return Default(lambda _settings, _name, _location: getattr(platform, variable), f"the platform's `{variable}`")


def _hosted(variable: str, page: str) -> Default:
    """Return the operator's page for end users of all tenants if there is one, else the hosted page of the tenant."""

    def address(_settings: Mapping[str, object], _name: str, location: PageAddress) -> object:
        # Without a tenant, in the API document, there is no address.
        return platform.END_USER_PAGES[variable] or (f"{location.root}/{page}" if location.slug else None)

    return Default(address, f"the platform's `{variable}` if it is set, else the tenant's hosted page `/{page}`")


def _origins(tenant_settings: Mapping[str, object], _name: str, location: PageAddress) -> list[str]:
    rp_id = tenant_settings.get("webauthn_rp_id")
    # The platform's origins cannot use a tenant's own RP ID.
    if rp_id and rp_id != platform.WEBAUTHN_RP_ID:
        return [f"https://{rp_id}"]
    return [] if location.domain else list(platform.WEBAUTHN_ORIGINS)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: what it accepts, what applies without it, and what it means."""

    field: StrictField
    default: Default
    label: Promise
    meaning: Promise
    # The tenant's own admins can read but not change it.
    operators_only: bool = False
    # The tenant's own admins cannot go beyond the platform's value and the present one: a longer lifetime, other countries.
    bounded: bool = False
    # The default can be null.
    nullable: bool = False
    # Text and lists that decide neither where tokens and mails lead, nor where passkeys are used, nor what tokens say about
    # users. Others count as deciding it.
    harmless: bool = False

    @property
    def routes(self) -> bool:
        """Return whether it decides where tokens of the tenant's users are sent, or what tokens say about users."""
        return not (self.harmless or isinstance(self.field, Boolean | Choice | Integer))


def _whole(least: int, most: int) -> StrictField:
    says = f"Send a whole number between {least} and {most}."
    return Integer(
        min_value=least,
        max_value=most,
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), says),
    )


SETTINGS: Final[Mapping[str, Setting]] = {
    "issuer_name": Setting(
        DisplayName(max_length=64, trim=True),
        Default(lambda _settings, name, _location: name or None, "the tenant's name"),
        _("Display name"),
        _("Name shown to users in mails, on the invitation page and in authenticator apps."),
        harmless=True,
    ),
    "mfa_policy": Setting(
        Choice(("optional", "required")),
        _fixed("optional"),
        _("Second factor"),
        _("Whether users need a second factor to sign in."),
    ),
    "remember_device_days": Setting(
        _whole(0, LONGEST_REMEMBERED_DAYS),
        _fixed(0),
        _("Remembered devices (days)"),
        _(
            "Days for which an end user can skip the second step at the hosted sign-in in the same browser, 0 to 30; 0 turns "
            "it off. A step-up always asks for the factor, and so does every sign-in if a second factor is required."
        ),
    ),
    "enrollment_mode": Setting(
        Choice(("window", "ticket", "bearer")),
        _fixed("window"),
        _("Enrollment proof"),
        _(
            "What proves that a caller may enroll a first factor. window: a recent registration or sign-in from the same "
            "network, a ticket or an access token; ticket: a ticket or an access token; bearer: an access token. An "
            "enrollment pass from an administrator always works."
        ),
    ),
    "password_min_length": Setting(
        _whole(SHORTEST_PASSWORD, 64),
        _fixed(SHORTEST_PASSWORD),
        _("Minimum password length"),
        _("Minimum number of characters of a new password, 8 to 64."),
    ),
    "self_registration": Setting(
        Boolean(),
        _fixed(True),
        _("Self-registration"),
        _("Whether users can register themselves. If false, users are invited, imported or synchronized."),
    ),
    "account_deletion": Setting(
        Choice(("off", "on")),
        _fixed("off"),
        _("Account deletion by users"),
        _("Whether end users can delete their own account."),
    ),
    "email_verification": Setting(
        Choice(("off", "required")),
        _fixed("off"),
        _("Email verification"),
        _("Whether users must verify their email address before they can sign in."),
    ),
    "access_token_seconds": Setting(
        _whole(60, LONGEST_ACCESS_TOKEN_SECONDS),
        _platform("ACCESS_TOKEN_SECONDS"),
        _("Access token lifetime (seconds)"),
        _("Lifetime of an access token in seconds, 60 to 86400. A tenant admin can shorten it only."),
        bounded=True,
    ),
    "refresh_token_seconds": Setting(
        _whole(3_600, 90 * 86_400),
        _platform("REFRESH_TOKEN_SECONDS"),
        _("Session idle limit (seconds)"),
        _("Seconds after which an end user's unused session ends, 3600 or more. Never longer than the platform's."),
        bounded=True,
    ),
    "session_seconds": Setting(
        _whole(3_600, 365 * 86_400),
        _platform("SESSION_SECONDS"),
        _("Session lifetime (seconds)"),
        _(
            "Seconds after which an end user's session ends even if used, 3600 or more. Never longer than the platform's."
        ),
        bounded=True,
    ),
    "admin_session_idle_seconds": Setting(
        _whole(300, 7 * 86_400),
        _platform("ADMIN_SESSION_IDLE_SECONDS"),
        _("Admin session idle limit (seconds)"),
        _("Seconds after which an admin's unused session ends, 300 or more. Never longer than the platform's."),
        bounded=True,
    ),
    "admin_session_seconds": Setting(
        _whole(600, 30 * 86_400),
        _platform("ADMIN_SESSION_SECONDS"),
        _("Admin session lifetime (seconds)"),
        _("Seconds after which an admin's session ends even if used, 600 or more. Never longer than the platform's."),
        bounded=True,
    ),
    "webauthn_rp_id": Setting(
        HOSTNAME,
        Default(
            lambda _settings, _name, location: location.domain or platform.WEBAUTHN_RP_ID,
            "the tenant's sign-in domain, else the platform's `WEBAUTHN_RP_ID`",
        ),
        _("Passkeys: RP ID"),
        _(
            "Domain of the WebAuthn relying party, such as example.com. It cannot change while passkeys of the present id "
            "exist. Operators only."
        ),
        operators_only=True,
        nullable=True,
    ),
    "webauthn_origins": Setting(
        DistinctItems(ORIGIN, most=20, allow_empty=False),
        Default(
            _origins,
            "those of the tenant's own `webauthn_rp_id` and sign-in domain, else the platform's `WEBAUTHN_ORIGINS`",
        ),
        _("Passkeys: origins"),
        _(
            "Origins that can use the passkeys, such as https://app.example.com or android:apk-key-hash:…; the sign-in domain "
            "can in any case. Operators only."
        ),
        operators_only=True,
    ),
    "password_reset_url": Setting(
        page_address(),
        _hosted("PASSWORD_RESET_URL", "reset"),
        _("Password reset page"),
        _("Page of the tenant's application where end users set a new password. The token follows the #."),
    ),
    "email_verification_url": Setting(
        page_address(),
        _hosted("EMAIL_VERIFICATION_URL", "verify-email"),
        _("Email verification page"),
        _("Page of the tenant's application where end users verify an email address. The token follows the #."),
    ),
    "invitation_url": Setting(
        page_address(),
        _hosted("INVITATION_URL", "invitation"),
        _("Invitation page"),
        _("Page of the tenant's application where end users accept an invitation. The token follows the #."),
    ),
    "app_metadata_claims": Setting(
        claim_names(),
        _fixed([]),
        _("Claims from app metadata"),
        _(
            "Keys of end users' app_metadata that ID tokens and userinfo return as claims of the same name with the scope "
            "profile, such as department or plan. Users cannot write app_metadata, so applications can rely on these claims."
        ),
    ),
    "external_id_claim": Setting(
        Boolean(),
        _fixed(False),
        _("External id as a claim"),
        _(
            "Whether ID tokens and userinfo return a user's external id as the claim external_id with the scope profile."
        ),
    ),
    "metadata_claims": Setting(
        claim_names(),
        _fixed([]),
        _("Claims from users' own metadata"),
        _(
            "Keys of end users' metadata that become claims in the same way. Warning: users write their metadata themselves, "
            "so a user chooses the value of such a claim. Applications must not rely on it; use app_metadata_claims instead."
        ),
        harmless=True,
    ),
    "profile_claims": Setting(
        ProfileClaims(),
        _fixed([]),
        _("Standard claims from metadata"),
        _(
            "Standard claims of the scope profile and the keys of metadata or app_metadata that they come from, such as "
            "given_name=metadata.first_name or picture=app_metadata.avatar. A value that is not of the claim's form, such as a "
            "picture that is no web address, is left out."
        ),
    ),
    "resource_names": Setting(
        ResourceNames(),
        _fixed([]),
        _("Names of resources"),
        _(
            "Names that users read on the consent page and at their connected applications in place of the addresses of "
            "resources (a client's audiences), such as https://api.example.com/invoices Invoices."
        ),
        harmless=True,
    ),
    "sms_countries": Setting(
        DistinctItems(COUNTRY, most=250),
        Default(
            lambda _settings, _name, _location: list(platform.SMS_COUNTRIES) or None, "the platform's `SMS_COUNTRIES`"
        ),
        _("SMS countries"),
        _(
            "Countries (ISO 3166 codes such as DE) to which SMS codes are sent; every country if neither the tenant nor the "
            "platform names any. A tenant admin can choose among the platform's only."
        ),
        bounded=True,
        nullable=True,
        harmless=True,
    ),
    "region": Setting(
        REGION,
        Default(lambda _settings, _name, _location: None, "none"),
        _("Region"),
        _(
            "Region that the tenant's database does not leave, such as eu: it is created on a database server there and "
            "moved to no other. It can change once the database is in the new region. Operators only."
        ),
        operators_only=True,
        nullable=True,
        harmless=True,
    ),
    "outbound_authorities": Setting(
        Certificates(max_length=LONGEST_PEM),
        Default(lambda _settings, _name, _location: None, "none"),
        _("Certificate authorities"),
        _(
            "Certificates (PEM, at most 20) of authorities that are trusted beside the public ones when the platform calls "
            "what this tenant has configured: webhook endpoints, jwks_uri and back-channel logout of its clients, directories."
        ),
        nullable=True,
    ),
}
