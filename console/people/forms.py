"""Forms of the pages inside a tenant."""

from typing import Any, Final
from uuid import UUID

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminEmailInputWidget,
    UnfoldAdminPasswordWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from console.frame.forms import ApiForm, Fields, JsonObject
from console.frame.records import Text
from userflow.accounts.models import Client, Group, Role
from userflow.endusers.serializers import EndUserChanges, RegisterIn
from userflow.groups.serializers import GroupIn
from userflow.invitations.serializers import InvitationIn
from userflow.roles.serializers import RoleIn

# With more choices than this, use the page of the group or role.
MOST_BOXES: Final = 300


def filled(fields: Fields) -> Fields:
    """Return the fields without empty ones."""
    return {name: value for name, value in fields.items() if value not in (None, "")}


def text(label: Text, *, most: int, required: bool = True, help_text: Text = "") -> forms.CharField:
    """One line."""
    return forms.CharField(
        label=label, max_length=most, required=required, help_text=help_text, widget=UnfoldAdminTextInputWidget()
    )


def lines(label: Text, *, most: int, required: bool = True, help_text: Text = "") -> forms.CharField:
    """Several lines."""
    return forms.CharField(
        label=label,
        max_length=most,
        required=required,
        help_text=help_text,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
    )


def address() -> forms.CharField:
    """An e-mail address, validated by the serializer."""
    return forms.CharField(label=_("E-mail"), max_length=254, widget=UnfoldAdminEmailInputWidget())


def boxes(label: Text, help_text: Text = "") -> forms.MultipleChoiceField:
    """Any number of choices."""
    return forms.MultipleChoiceField(
        label=label, required=False, help_text=help_text, widget=UnfoldAdminCheckboxSelectMultipleWidget()
    )


class ClientChoice(forms.Form):
    """The client through which the user signs in."""

    client_id = forms.ChoiceField(label=_("Client"), widget=UnfoldAdminSelectWidget())

    def __init__(self, *args: Any, clients: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["client_id"].choices = clients  # type: ignore[attr-defined]  # it is a ChoiceField


def clients_of(tenant_id: UUID) -> list[tuple[str, str]]:
    """Return the tenant's active clients, the default one first."""
    rows = Client.objects.filter(tenant_id=tenant_id, active=True).order_by("-is_default", "name")[:MOST_BOXES]
    return [(str(client.pk), client.name) for client in rows]


def role_names() -> list[tuple[str, str]]:
    """Return the roles of the entered tenant by name."""
    return [(name, name) for name in Role.objects.order_by("name").values_list("name", flat=True)[:MOST_BOXES]]


class EndUserForm(ApiForm):
    """Name, address and metadata of an end user."""

    serializer = EndUserChanges
    name = text(_("Name"), most=255, required=False)
    email = address()
    metadata = JsonObject(
        label=_("Metadata"),
        required=False,
        help_text=_("A JSON object for your applications. It is replaced as a whole."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 6, "class": "people-code"}),
    )

    def body(self, fields: Fields) -> Fields:
        return {**fields, "metadata": fields["metadata"] or {}}


class RegisterForm(ClientChoice, ApiForm):
    """A new end user with a first password."""

    serializer = RegisterIn
    email = address()
    name = text(_("Name"), most=255, required=False)
    password = forms.CharField(
        label=_("First password"),
        max_length=1024,
        strip=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        help_text=_("Hand it over securely, or send an invitation instead: then the user chooses it."),
    )
    field_order = ("email", "name", "client_id", "password")

    def __init__(self, *args: Any, tenant_id: UUID, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tenant_id = tenant_id

    def body(self, fields: Fields) -> Fields:
        return {**filled(fields), "tenant_id": str(self.tenant_id)}


class InviteForm(ClientChoice, ApiForm):
    """The invited address, client and roles."""

    serializer = InvitationIn
    email = address()
    roles = boxes(_("Roles"), _("In addition to the role that all users have."))
    field_order = ("email", "client_id", "roles")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["roles"].choices = role_names()  # type: ignore[attr-defined]  # it is a MultipleChoiceField

    def body(self, fields: Fields) -> Fields:
        return {**filled(fields), "kind": "end_user"}


class ReasonForm(forms.Form):
    """The reason of a factor reset."""

    reason = lines(_("Reason"), most=500, help_text=_("Recorded in the audit trail. Do not enter personal data."))


class ChosenForm(forms.Form):
    """Checkboxes for the groups or roles of a user. Only what is changed in the form changes; concurrent changes stay."""

    chosen = boxes("")
    was = forms.CharField(required=False, widget=forms.HiddenInput())

    def __init__(self, *args: Any, label: Text, choices: list[tuple[str, str]], had: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["chosen"].label = label
        self.fields["chosen"].choices = choices  # type: ignore[attr-defined]  # it is a MultipleChoiceField
        self.initial = {"chosen": had, "was": ",".join(had)}

    def clean(self) -> Fields:
        """Return what was `added` and `removed` since the form was rendered."""
        known = {key for key, _ in self.fields["chosen"].choices}  # type: ignore[attr-defined]  # it has choices
        was = set(self.cleaned_data.get("was", "").split(",")) & known
        chosen = set(self.cleaned_data.get("chosen", []))
        return {"added": sorted(chosen - was), "removed": sorted(was - chosen)}


def group_choices() -> list[tuple[str, str]]:
    """Return the groups of the entered tenant by name."""
    return [(str(key), name) for key, name in Group.objects.order_by("name").values_list("pk", "name")[:MOST_BOXES]]


def role_choices() -> list[tuple[str, str]]:
    """Return the roles of the entered tenant by name."""
    return [(str(key), name) for key, name in Role.objects.order_by("name").values_list("pk", "name")[:MOST_BOXES]]


class GroupForm(ApiForm):
    """A group: its name and its roles."""

    serializer = GroupIn
    name = text(_("Name"), most=255)
    description = text(_("Description"), most=1000, required=False)
    roles = boxes(_("Roles of members"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["roles"].choices = role_names()  # type: ignore[attr-defined]  # it is a MultipleChoiceField


class RoleForm(ApiForm):
    """A role: its name and its permissions, one per line."""

    serializer = RoleIn
    name = text(_("Name"), most=63)
    description = text(_("Description"), most=1000, required=False)
    permissions = forms.CharField(
        label=_("Permissions"),
        required=False,
        help_text=_("One per line as resource:action, such as invoices:approve."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8, "class": "people-code"}),
    )

    def body(self, fields: Fields) -> Fields:
        return {**fields, "permissions": fields["permissions"].split()}


class ChosenUsersForm(forms.Form):
    """Some of the users that a search has found."""

    chosen = boxes(_("Users"))

    def __init__(self, *args: Any, choices: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["chosen"].choices = choices  # type: ignore[attr-defined]  # it is a MultipleChoiceField

    def clean_chosen(self) -> list[str]:
        """At least one."""
        chosen: list[str] = self.cleaned_data["chosen"]
        if not chosen:
            raise forms.ValidationError(_("Choose at least one user."))
        return chosen
