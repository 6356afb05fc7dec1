"""Forms of admin users, invitations, clients, webhooks, directories and the platform."""

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import Serializer
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminPasswordWidget

from console.frame.access import Staff
from console.frame.forms import Address, ApiForm, Fields, Line, Lines, Number, Pick, Tick
from console.signin.forms import ProofForm
from tenants.models import Tenant
from userflow.accounts.models import CONFIDENTIAL, PUBLIC, AdminRole
from userflow.accounts.permissions_catalogue import OPERATOR_PERMISSIONS
from userflow.admins.serializers import AdminUserChanges, AdminUserIn
from userflow.clients.serializers import ClientIn
from userflow.directory.serializers import DirectoryChanges
from userflow.events.catalogue import FILTERS
from userflow.invitations.serializers import InvitationIn
from userflow.webhooks.serializers import STATUSES, WebhookEndpointChanges, WebhookEndpointIn

PLATFORM = "platform"


def roles_for(staff: Staff, tenant_id: UUID | None, held: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The admin roles that the person may give on that side, and those that are `held` anyway.

    The action rejects all others too; here they are not even offered.
    """
    found = AdminRole.objects.order_by("name")
    return [
        (role.name, f"{role.name} ({len(role.permissions)})")
        for role in found
        if role.name in held
        or (
            set(role.permissions) <= staff.principal.permissions
            and (tenant_id is None or not set(role.permissions) & set(OPERATOR_PERMISSIONS))
        )
    ]


class Roles(forms.MultipleChoiceField):
    """Some of the admin roles."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminCheckboxSelectMultipleWidget(), **options)


class SidedForm(ApiForm):
    """A form about an admin user of the platform or of one tenant."""

    side = Pick(label=_("Works for"))
    roles = Roles(label=_("Roles"), help_text=_("The number of permissions in brackets."))

    def __init__(self, *args: Any, staff: Staff, tenant: Tenant | None, **options: Any) -> None:
        super().__init__(*args, **options)
        sides = [] if tenant is None else [(str(tenant.pk), tenant.name)]
        if staff.is_operator:
            sides.insert(0, (PLATFORM, _("The platform (operator)")))  # type: ignore[arg-type]  # translated when shown
        self.fields["side"].choices = sides  # type: ignore[attr-defined]  # it is a choice field
        self.fields["roles"].choices = roles_for(staff, staff.user.tenant_id)  # type: ignore[attr-defined]  # the same

    def tenant_of(self, fields: Fields) -> str | None:
        """The tenant's id, or None for the platform."""
        return None if fields["side"] == PLATFORM else str(fields["side"])


class NewAdminForm(SidedForm):
    """An admin user with a first password."""

    serializer = AdminUserIn

    username = Line(label=_("Username"))
    email = Address(label=_("E-mail address"))
    first_name = Line(label=_("First name"))
    last_name = Line(label=_("Last name"))
    password = forms.CharField(
        label=_("First password"),
        strip=False,
        widget=UnfoldAdminPasswordWidget({"autocomplete": "new-password"}),
        help_text=_("Hand it over separately from the username. An invitation by mail needs no password."),
    )
    field_order = ("side", "username", "email", "first_name", "last_name", "password", "roles")

    def body(self, fields: Fields) -> Fields:
        """Return the body of the API's POST."""
        plain = {name: value for name, value in fields.items() if name != "side"}
        return {**plain, "tenant_id": self.tenant_of(fields)}


class AdminForm(ApiForm):
    """An admin user's record; the own record without roles, which users cannot change themselves."""

    serializer = AdminUserChanges

    username = Line(label=_("Username"))
    email = Address(label=_("E-mail address"), help_text=_("The old address is notified of a change."))
    first_name = Line(label=_("First name"), required=False)
    last_name = Line(label=_("Last name"), required=False)
    roles = Roles(label=_("Roles"), required=False, help_text=_("The number of permissions in brackets."))

    def __init__(self, *args: Any, choices: list[tuple[str, str]] | None, **options: Any) -> None:
        super().__init__(*args, **options)
        if choices is None:
            del self.fields["roles"]
        else:
            self.fields["roles"].choices = choices  # type: ignore[attr-defined]  # it is a choice field


class OwnRecordForm(AdminForm, ProofForm):
    """The own record, with the proof that a new e-mail address needs."""

    field_order = ("username", "email", "first_name", "last_name", "current_password", "code")

    def __init__(self, *args: Any, **options: object) -> None:
        super().__init__(*args, choices=None, **options)
        if "current_password" in self.fields:
            self.fields["current_password"].help_text = _("Required for a new e-mail address.")

    def needs_proof(self, given: Fields) -> bool:
        """A new e-mail address."""
        return bool(given.get("email") != self.initial["email"])

    def body(self, fields: Fields) -> Fields:
        """The body that the API would be sent, without the proof."""
        return {name: value for name, value in fields.items() if name not in ProofForm.base_fields}

    def clean(self) -> Fields:
        """The record, and the proof beside it."""
        proof = {name: value for name, value in self.cleaned_data.items() if name in ProofForm.base_fields}
        return {**super().clean(), **proof}


class InvitationForm(SidedForm):
    """An invitation of an admin user by mail."""

    serializer = InvitationIn

    email = Address(label=_("E-mail address"))
    field_order = ("side", "email", "roles")

    def body(self, fields: Fields) -> Fields:
        """Return the body of the API's POST."""
        return {
            "email": fields["email"],
            "kind": "admin",
            "roles": fields["roles"],
            **({"tenant_id": self.tenant_of(fields)} if self.tenant_of(fields) else {}),
        }


class ClientForm(ApiForm):
    """A client of the tenant. Its type does not change."""

    serializer: ClassVar[type[Serializer[object]]] = ClientIn

    name = Line(label=_("Name"))
    type = Pick(
        label=_("Type"),
        choices=[
            (PUBLIC, _("public: signs in end users, has no secret (browsers, apps)")),
            (CONFIDENTIAL, _("confidential: authenticates with a secret (servers)")),
        ],
        initial=PUBLIC,
    )
    redirect_uris = Lines(label=_("Redirect URIs"), required=False, help_text=_("One per line."))
    scopes = Lines(label=_("Scopes"), required=False, help_text=_("One per line, such as services:read."))
    tags = Lines(label=_("Tags"), required=False, help_text=_("One per line."))
    self_registration = Tick(label=_("End users can register through it"))


class OverlapForm(forms.Form):
    """How long the current secret stays valid."""

    overlap_hours = Number(
        label=_("Hours that the current secret stays valid"),
        min_value=0,
        max_value=30 * 24,
        initial=24,
        help_text=_("0 revokes it at once. Use 0 if it has leaked."),
    )


class ServerForm(forms.Form):
    """The capacity of a database server."""

    capacity = Number(label=_("Maximum number of tenants"), min_value=0, max_value=1_000_000)
    accepts = Tick(label=_("Accepts new tenants"))


class AtOnceForm(forms.Form):
    """Whether the new key signs before verifiers have it."""

    at_once = Tick(
        label=_("Sign with the new key at once"),
        help_text=_("Verifiers that cache the JWKS may reject its tokens for some minutes."),
    )


class EndpointForm(ApiForm):
    """A webhook endpoint. The action checks the address."""

    serializer: ClassVar[type[Serializer[object]]] = WebhookEndpointIn

    url = Line(label=_("Address"), help_text=_("An https address outside private networks."))
    description = Line(label=_("Description"), required=False)
    events = forms.MultipleChoiceField(
        label=_("Events"),
        choices=[(name, name) for name in FILTERS],
        initial=["*"],
        widget=UnfoldAdminCheckboxSelectMultipleWidget(),
        help_text=_("* selects all events, end_user.* all events of end users."),
    )
    enabled = Tick(label=_("Enabled"), initial=True)


class EndpointChangesForm(EndpointForm):
    """Changes to an endpoint."""

    serializer = WebhookEndpointChanges


class MessageSearch(forms.Form):
    """Which messages of an endpoint are shown."""

    status = forms.ChoiceField(required=False, choices=[(name, name) for name in STATUSES])
    before = forms.IntegerField(required=False, min_value=1, max_value=2**62)


class ScheduleForm(ApiForm):
    """Whether and how often a directory is read."""

    serializer = DirectoryChanges

    name = Line(label=_("Name"))
    enabled = Tick(label=_("Read on schedule"))
    sync_every_minutes = Number(
        label=_("Minutes between two runs"), required=False, help_text=_("Leave empty to run only on request.")
    )
    max_deactivation_percent = Number(
        label=_("Deactivates at most (percent)"),
        help_text=_("A run that would deactivate more users is rejected."),
    )


class SyncForm(forms.Form):
    """Options of a run."""

    full = Tick(label=_("Full run: read everything instead of changes only"))
    force = Tick(
        label=_("Deactivate any number of missing users"),
        help_text=_("Only if you are sure that they were removed from the directory."),
    )
