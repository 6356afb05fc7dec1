from collections.abc import Sequence
from typing import ClassVar, Unpack
from uuid import UUID

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils.functional import lazy
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import Serializer
from unfold.widgets import UnfoldAdminTextInputWidget

from console.frame import forms as fields
from console.frame.access import Context, Staff
from console.frame.forms import ApiForm, FormOptions, set_choices
from console.frame.labels import STATES
from console.platform.client_fields import FieldGroup, field_groups
from console.signin.forms import ProofForm
from tenants.lifecycle.capacity import labels_in
from tenants.models import Tenant
from tenants.settings.setting_fields import REGION
from userflow.accounts.client_fields import CONFIDENTIAL
from userflow.accounts.grant_types import LABELS, listed
from userflow.accounts.models import AdminRole
from userflow.accounts.permissions_catalogue import OPERATOR_PERMISSIONS, TENANT_ADMIN
from userflow.accounts.security_profiles import SECURITY_PROFILES, profile_of
from userflow.admins.serializers import AdminUserChanges, AdminUserIn
from userflow.clients.kinds import ClientKind, new_client_fields
from userflow.clients.registration import ACCESS_TOKEN_ALGORITHMS, CREDENTIAL_FIELDS, ID_TOKEN_ALGORITHMS
from userflow.clients.serializers import ClientIn
from userflow.domains.serializers import DomainIn
from userflow.events.catalogue import EVENTS, FILTERS
from userflow.invitations.serializers import InvitationIn
from userflow.sessions.client_authentication import METHODS
from userflow.webhooks.serializers import STATUSES, WebhookEndpointChanges, WebhookEndpointIn


def roles_for(staff: Staff, tenant_id: UUID | None, current_roles: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the admin roles that fit the tenant, or the platform, and that the user may give; and the `current_roles`."""
    return [
        (role.name, f"{role.name} ({len(role.permissions)})")
        for role in AdminRole.objects.order_by("name")
        if role.name in current_roles
        or (
            set(role.permissions) <= staff.principal.permissions
            and (
                role.name != TENANT_ADMIN
                if tenant_id is None
                else not set(role.permissions) & set(OPERATOR_PERMISSIONS)
            )
        )
    ]


class ScopedForm(ApiForm):
    """A form about a new admin user of the tenant, or of the platform without one: then what it gives is typed."""

    roles = fields.Boxes(label=_("Roles"), help_text=_("The number of permissions in brackets."))
    typed = forms.CharField(
        max_length=255, strip=True, widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"})
    )

    def __init__(
        self, *, staff: Staff, tenant: Tenant | None, confirmation_text: str, **options: Unpack[FormOptions]
    ) -> None:
        super().__init__(**options)
        self.tenant, self.confirmation_text = tenant, confirmation_text
        set_choices(self, "roles", roles_for(staff, tenant.pk if tenant else None))
        if tenant is None:
            self.fields["typed"].label = _("Type %(wanted)s to confirm") % {"wanted": confirmation_text}
        else:
            del self.fields["typed"]

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"])
        if typed != self.confirmation_text:
            raise ValidationError(_("This is not %(wanted)s.") % {"wanted": self.confirmation_text})
        return typed

    def body(self) -> Context:
        """Return the fields of the API's body; the typed text is none."""
        return {name: value for name, value in self.cleaned_data.items() if name != "typed"}


class NewAdminForm(ScopedForm):
    serializer = AdminUserIn

    username = fields.Line(label=_("Username"))
    email = fields.Address(label=_("E-mail address"))
    first_name = fields.Line(label=_("First name"))
    last_name = fields.Line(label=_("Last name"))
    password = fields.NewPassword(
        label=_("First password"),
        strip=False,
        help_text=_("Share it separately from the username. An invitation by mail needs no password."),
    )
    field_order = ("username", "email", "first_name", "last_name", "password", "roles", "typed")


class RecordForm(ApiForm):
    serializer = AdminUserChanges

    username = fields.Line(label=_("Username"))
    email = fields.Address(label=_("E-mail address"), help_text=_("The old address is notified of a change."))
    first_name = fields.Line(label=_("First name"), required=False)
    last_name = fields.Line(label=_("Last name"), required=False)


class AdminForm(RecordForm):
    roles = fields.Boxes(label=_("Roles"), required=False, help_text=_("The number of permissions in brackets."))

    def __init__(self, *, choices: list[tuple[str, str]], **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        set_choices(self, "roles", choices)

    def clean_roles(self) -> list[str]:
        """Return the names in the order of the initial value."""
        return sorted(self.cleaned_data["roles"])


class OwnAccountForm(RecordForm, ProofForm):
    """The own record, with the proof that a new e-mail address needs. Users cannot change their own roles."""

    field_order = ("username", "email", "first_name", "last_name", "current_password", "code")
    proof_help = _("Required for a new e-mail address.")

    def needs_proof(self) -> bool:
        """A new e-mail address."""
        return bool(self.cleaned_data.get("email") != self.initial["email"])

    def body(self) -> Context:
        return {name: value for name, value in self.cleaned_data.items() if name not in ProofForm.base_fields}

    def clean(self) -> Context:
        """Return the record, and the proof beside it."""
        proof_fields = {name: value for name, value in self.cleaned_data.items() if name in ProofForm.base_fields}
        return {**super().clean(), **proof_fields}


class InvitationForm(ScopedForm):
    serializer = InvitationIn

    email = fields.Address(label=_("E-mail address"))
    field_order = ("email", "roles", "typed")

    def body(self) -> Context:
        return {**super().body(), "kind": "admin"}


class ClientForm(ApiForm):
    """A client of some kind: first the fields that the kind needs, all others as advanced settings."""

    serializer: ClassVar[type[Serializer[object]]] = ClientIn

    name = fields.Line(label=_("Name"))
    redirect_uris = fields.Lines(
        label=_("Redirect URIs"),
        required=False,
        help_text=_("One per line, such as https://app.example/callback: where users return to after the sign-in."),
    )
    scopes = fields.Lines(label=_("Scopes"), required=False, help_text=_("One per line, such as services:read."))
    tags = fields.Lines(label=_("Tags"), required=False, help_text=_("One per line."))
    self_registration = fields.Tick(label=_("End users can register through it"))
    first_party = fields.Tick(label=_("First-party: users are not asked for consent"))
    direct_sign_in = fields.Tick(
        label=_("A first-party application may sign users in by JSON, without the hosted pages"), initial=True
    )
    grant_types = fields.Boxes(
        label=_("Grant types"),
        required=False,
        choices=list(LABELS.items()),
        help_text=format_lazy("{} {}.", _("None selected: the default of the type."), lazy(listed, str)()),
    )
    token_endpoint_auth_method = fields.Pick(
        label=_("Authenticates by"),
        required=False,
        choices=[
            ("", _("the default of the type: nothing, or its secret in either form")),
            *zip(METHODS, METHODS, strict=True),
        ],
    )
    jwks = fields.JsonObject(
        label=_("Public keys"),
        required=False,
        help_text=_('For private_key_jwt: {"keys": [...]}, or an address below.'),
    )
    jwks_uri = fields.Line(label=_("URL of the public keys (JWKS)"), required=False)
    allowed_origins = fields.Lines(
        label=_("Allowed origins"),
        required=False,
        help_text=_(
            "One per line, such as https://app.example: web pages that call the OpenID endpoints. A new single-page "
            "application has those of its redirect URIs if this is empty."
        ),
    )
    post_logout_redirect_uris = fields.Lines(
        label=_("Redirect URIs after logout"), required=False, help_text=_("One per line.")
    )
    backchannel_logout_uri = fields.Line(label=_("Logout URL"), required=False, help_text=_("Gets logout tokens."))
    audiences = fields.Lines(
        label=_("Audiences"), required=False, help_text=_("One per line: resources that it may ask for.")
    )
    id_token_signed_response_alg = fields.Pick(
        label=_("Algorithm of ID tokens"),
        required=False,
        choices=[(name, name) for name in ID_TOKEN_ALGORITHMS],
        initial=ID_TOKEN_ALGORITHMS[0],
    )
    access_token_signed_response_alg = fields.Pick(
        label=_("Algorithm of access tokens"),
        required=False,
        choices=[(name, name) for name in ACCESS_TOKEN_ALGORITHMS],
        initial=ACCESS_TOKEN_ALGORITHMS[0],
        help_text=_("RS256 is for APIs and gateways that verify RSA only."),
    )
    require_par = fields.Tick(label=_("Accept pushed authorization requests only"))
    require_pkce = fields.Tick(
        label=_("Require PKCE"),
        initial=True,
        help_text=_("Switch it off only for a confidential client whose library cannot send it."),
    )
    require_nonce = fields.Tick(
        label=_("Require nonce in requests without PKCE"),
        initial=True,
        help_text=_(
            "Switch it off only for a library that can send neither: someone who steals a code can then sign in to the "
            "application with it (code injection, RFC 9700 section 2.1.1)."
        ),
    )
    dpop_bound_access_tokens = fields.Tick(label=_("Require DPoP"))
    tls_client_certificate_bound_access_tokens = fields.Tick(
        label=_("Bind tokens to the certificate of the application (mutual TLS)")
    )
    tls_client_auth_subject_dn = fields.Line(
        label=_("Subject of the certificate"),
        required=False,
        help_text=_("For tls_client_auth, such as CN=client,O=Example,C=DE; or one of the next four."),
    )
    tls_client_auth_san_dns = fields.Line(label=_("DNS name in the certificate"), required=False)
    tls_client_auth_san_uri = fields.Line(label=_("URI in the certificate"), required=False)
    tls_client_auth_san_ip = fields.Line(label=_("IP address in the certificate"), required=False)
    tls_client_auth_san_email = fields.Line(label=_("E-mail address in the certificate"), required=False)
    tls_client_auth_authorities = fields.Paragraph(
        label=_("Certificate authorities of the application"),
        required=False,
        help_text=_("For tls_client_auth: certificates (PEM) of those that issue its certificate."),
    )
    refresh_token_rotation = fields.Pick(
        label=_("New refresh token at each refresh"),
        required=False,
        choices=[("", _("Unless the client proves a key")), ("True", _("Always")), ("False", _("Never"))],
        help_text=_("Public clients without DPoP always get a new one."),
    )
    security_profile = fields.Pick(
        label=_("Security profile"),
        required=False,
        choices=[("", _("none")), *zip(SECURITY_PROFILES, SECURITY_PROFILES, strict=True)],
        help_text=_(
            "Sets what the profile demands of the fields that you leave unchanged. The client's present sessions end."
        ),
    )
    access_token_seconds = fields.Number(
        label=_("Access token lifetime (seconds)"), required=False, help_text=_("Empty: the setting of the tenant.")
    )
    default_max_age = fields.Number(
        label=_("Sign in again after (seconds)"), required=False, help_text=_("Empty: no limit of its own.")
    )
    logo_uri = fields.Line(label=_("Logo"), required=False, help_text=_("For applications; no page shows it."))
    client_uri = fields.Line(label=_("Home page"), required=False, help_text=_("The consent page links to it."))
    policy_uri = fields.Line(label=_("Privacy policy"), required=False)
    tos_uri = fields.Line(label=_("Terms of service"), required=False)

    def __init__(self, *, kind: ClientKind, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        self.kind = kind
        self.fields["grant_types"].initial = list(kind.grant_types)
        if kind.type != CONFIDENTIAL:
            # A public client authenticates with nothing and always needs PKCE.
            for name in (*CREDENTIAL_FIELDS, "require_pkce", "require_nonce"):
                del self.fields[name]

    def needed_groups(self) -> list[FieldGroup]:
        """Return what the kind of application needs."""
        return field_groups(self, ("name", *self.kind.fields))

    def advanced_groups(self) -> list[FieldGroup]:
        """Return all other fields."""
        return field_groups(self, self.fields.keys() - {"name", *self.kind.fields})

    def has_advanced_errors(self) -> bool:
        """Return whether one of the advanced settings must be corrected."""
        return bool(self.errors.keys() - {NON_FIELD_ERRORS, "name", *self.kind.fields})

    def clean_refresh_token_rotation(self) -> bool | None:
        """Return the choice, None for the default."""
        return {"True": True, "False": False}.get(str(self.cleaned_data["refresh_token_rotation"]))

    def body(self) -> Context:
        values = {name: None if value in ("", {}) else value for name, value in self.cleaned_data.items()}
        return {**values, "type": self.kind.type}

    def clean(self) -> Context:
        """Return the fields without those that the security profile decides and that were left as they are: it sets them."""
        cleaned = super().clean()
        left_to_profile = profile_of(self.cleaned_data.get("security_profile")).settings.keys() - set(self.changed_data)
        return {name: value for name, value in cleaned.items() if name not in left_to_profile}


class NewClientForm(ClientForm):
    def body(self) -> Context:
        return new_client_fields(self.kind, super().body())


class OverlapForm(forms.Form):
    overlap_hours = fields.Number(
        label=_("Hours that the current secret stays valid"),
        min_value=0,
        max_value=30 * 24,
        initial=24,
        help_text=_("0 revokes it at once. Use 0 if it has leaked."),
    )

    def clean(self) -> Context:
        """Return the seconds, which the action takes."""
        return {"overlap_seconds": self.cleaned_data.get("overlap_hours", 0) * 3600}


class ServerForm(forms.Form):
    capacity = fields.Number(label=_("Maximum number of tenants"), min_value=0, max_value=1_000_000)
    accepts = fields.Tick(label=_("Accepts new tenants"))
    region = forms.RegexField(
        rf"\A(?:{REGION.pattern})\Z",
        label=_("Region"),
        required=False,
        help_text=_("Where its machines are, such as eu: tenants that are bound to it can be there."),
        error_messages={"invalid": _("Use a-z, 0-9 and dashes, no dash at either end.")},
        widget=fields.Line.widget,
    )
    labels = fields.Line(
        label=_("Labels"),
        required=False,
        help_text=_("What else tells it from others, such as ssd; separated by commas."),
    )

    def clean_labels(self) -> list[str]:
        """Return the labels as a list."""
        try:
            return labels_in(self.cleaned_data["labels"])
        except ValueError:
            raise ValidationError(_("Use a-z, 0-9, dots and dashes, and commas between labels.")) from None


class AtOnceForm(forms.Form):
    at_once = fields.Tick(
        label=_("Sign with the new key at once"),
        help_text=_("Verifiers that cache the JWKS may reject its tokens for some minutes."),
    )


class EndpointForm(ApiForm):
    """A webhook endpoint. The action checks the address."""

    serializer: ClassVar[type[Serializer[object]]] = WebhookEndpointIn

    url = fields.Line(label=_("URL"), help_text=_("An https URL outside private networks."))
    description = fields.Line(label=_("Description"), required=False)
    events = fields.Boxes(
        label=_("Events"),
        choices=[(name, name) for name in FILTERS],
        initial=["*"],
        help_text=_("* selects all events, end_user.* all events of end users."),
    )
    enabled = fields.Tick(label=_("Enabled"), initial=True)


class EndpointChangesForm(EndpointForm):
    serializer = WebhookEndpointChanges


class DomainForm(ApiForm):
    """A domain. The action checks it."""

    serializer = DomainIn

    domain = fields.Line(label=_("Domain"), help_text=_("Such as login.example.com."))


class DomainSearch(forms.Form):
    q = fields.Line(label=_("Part of a domain"), max_length=253, required=False)


class DisablePasskeysForm(forms.Form):
    """Whether the sign-in domain changes even if passkeys cannot be used with the new RP ID."""

    disable_passkeys = fields.Tick(
        label=_("Change it even if passkeys stop working"),
        help_text=_("They work again when their domain is the sign-in domain again."),
    )


class MessageSearch(forms.Form):
    """Filters of webhook messages. The page ends before the message with the number `before`."""

    event = fields.Pick(label=_("Event"), required=False, choices=[("", _("All")), *((name, name) for name in EVENTS)])
    status = fields.Pick(
        label=_("State"), required=False, choices=[("", _("All")), *((name, STATES[name]) for name in STATUSES)]
    )
    before = forms.IntegerField(required=False, min_value=1, max_value=2**62, widget=forms.HiddenInput)

    def filters(self) -> dict[str, str]:
        """Return the valid filters that are filled."""
        return {name: value for name in ("event", "status") if (value := self.cleaned_data.get(name))}
