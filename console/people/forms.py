from typing import Final, Unpack
from uuid import UUID

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget

from console.frame import forms as fields
from console.frame.access import Context
from console.frame.forms import ApiForm, FormOptions, set_choices
from console.frame.records import Text
from userflow.accounts.models import LONGEST_EXTERNAL_ID, Client, Role
from userflow.branding.texts import named_languages
from userflow.endusers.serializers import EndUserChangesByAdmins, RegistrationIn
from userflow.groups.serializers import GroupIn
from userflow.invitations.serializers import InvitationIn
from userflow.roles.serializers import RoleIn

# With more choices than this, use the page of the group or role.
MOST_BOXES: Final = 300
_CODE: Final = {"rows": 6, "class": "people-code"}


class ClientChoice(ApiForm):
    """The client through which the user signs in, one of the tenant's active clients."""

    client_id = fields.Pick(label=_("Client"))

    def __init__(self, *, tenant_id: UUID, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        self.tenant_id = tenant_id
        rows = Client.objects.filter(tenant_id=tenant_id, active=True).order_by("-is_default", "name")[:MOST_BOXES]
        set_choices(self, "client_id", [(str(client.pk), client.name) for client in rows])

    def body(self) -> Context:
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}


def role_names() -> list[tuple[str, str]]:
    """Return the roles of the entered tenant by name."""
    return [(name, name) for name in Role.objects.order_by("name").values_list("name", flat=True)[:MOST_BOXES]]


class EndUserForm(ApiForm):
    serializer = EndUserChangesByAdmins
    name = fields.Line(label=_("Name"), max_length=255, required=False)
    email = fields.Address(label=_("E-mail address"), max_length=254)
    language = fields.Pick(
        label=_("Language of pages and mails"),
        required=False,
        choices=[("", _("None chosen")), *named_languages()],
    )
    metadata = fields.JsonObject(
        label=_("Metadata"),
        required=False,
        help_text=_(
            "A JSON object that the user can change too: nothing that applications rely on. It is replaced as a whole."
        ),
        widget=UnfoldAdminTextareaWidget(_CODE),
    )
    app_metadata = fields.JsonObject(
        label=_("App metadata"),
        required=False,
        help_text=_(
            "A JSON object that the user can read but not change, such as plan or department. It is replaced as a whole."
        ),
        widget=UnfoldAdminTextareaWidget(_CODE),
    )
    external_id = fields.Line(
        label=_("External id"),
        max_length=LONGEST_EXTERNAL_ID,
        required=False,
        help_text=_("The id of the user in another system. No two users of the tenant have the same."),
    )

    def body(self) -> Context:
        emptied = {name: self.cleaned_data[name] or None for name in ("language", "external_id")}
        return self.cleaned_data | emptied


class RegisterForm(ClientChoice):
    serializer = RegistrationIn
    email = fields.Address(label=_("E-mail address"), max_length=254)
    name = fields.Line(label=_("Name"), max_length=255, required=False)
    password = fields.NewPassword(
        label=_("First password"),
        max_length=1024,
        strip=False,
        help_text=_("Share it securely, or send an invitation instead, so that the user chooses a password."),
    )
    external_id = EndUserForm.base_fields["external_id"]
    field_order = ("email", "name", "client_id", "password", "external_id")

    def body(self) -> Context:
        return {**super().body(), "tenant_id": str(self.tenant_id)}


class InviteForm(ClientChoice):
    serializer = InvitationIn
    email = fields.Address(label=_("E-mail address"), max_length=254)
    roles = fields.Boxes(
        label=_("Roles"),
        required=False,
        help_text=_("In addition to the role that all users have."),
        choices=role_names,
    )
    field_order = ("email", "client_id", "roles")

    def body(self) -> Context:
        return {**super().body(), "kind": "end_user"}


class ChosenForm(forms.Form):
    """Checkboxes for the groups or roles of a user. Only what is changed in the form changes; concurrent changes stay."""

    chosen = fields.Boxes(required=False)
    was = forms.CharField(required=False, widget=forms.HiddenInput())

    def __init__(
        self, *, label: Text, choices: list[tuple[str, str]], had: list[str], **options: Unpack[FormOptions]
    ) -> None:
        super().__init__(**options)
        self.fields["chosen"].label = label
        set_choices(self, "chosen", choices)
        self.known = {key for key, _ in choices}
        self.initial = {"chosen": had, "was": ",".join(had)}

    def clean(self) -> Context:
        """Return what was `added` and `removed` since the form was rendered."""
        was = set(self.cleaned_data.get("was", "").split(",")) & self.known
        chosen = set(self.cleaned_data.get("chosen", []))
        return {"added": sorted(chosen - was), "removed": sorted(was - chosen)}


class GroupForm(ApiForm):
    serializer = GroupIn
    name = fields.Line(label=_("Name"), max_length=255)
    description = fields.Line(label=_("Description"), max_length=1000, required=False)
    roles = fields.Boxes(label=_("Roles of members"), required=False, choices=role_names)


class RoleForm(ApiForm):
    serializer = RoleIn
    name = fields.Line(label=_("Name"), max_length=63)
    description = fields.Line(label=_("Description"), max_length=1000, required=False)
    permissions = fields.Lines(
        label=_("Permissions"),
        required=False,
        help_text=_("One per line as resource:action, such as invoices:approve."),
        widget=UnfoldAdminTextareaWidget(_CODE),
    )


class ChosenUsersForm(forms.Form):
    chosen = fields.Boxes(label=_("Users"), error_messages={"required": _("Choose at least one user.")})

    def __init__(self, *, choices: list[tuple[str, str]], **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        set_choices(self, "chosen", choices)
