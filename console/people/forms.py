"""Forms of the pages inside a tenant: dressed for the console, checked by the shapes of the API."""

from typing import Any, ClassVar, Final

from django import forms
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import Serializer
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminEmailInputWidget,
    UnfoldAdminPasswordWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from console.frame.forms import Members
from userflow.accounts.models import Client, Group, Role
from userflow.endusers.serializers import EndUserChanges, RegisterIn
from userflow.groups.serializers import GroupIn
from userflow.invitations.serializers import InvitationIn
from userflow.roles.serializers import RoleIn

# More boxes than this are no choice any more: then the page of the group or role is the place.
MOST_BOXES: Final = 300


class Shaped(forms.Form):
    """A form whose members are those of a call of the API; the call's own shape says what is wrong with them."""

    shape: ClassVar[type[Serializer[Any]]]

    def members(self) -> dict[str, Any]:
        """What the call would carry; a member that was left empty is left out."""
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}

    def clean(self) -> dict[str, Any]:
        """The values as the API takes them. ValidationError at the fields otherwise."""
        if self.errors:
            return self.cleaned_data
        shaped = self.shape(data=self.members())
        if shaped.is_valid():
            return dict(shaped.validated_data)
        for name, problems in shaped.errors.items():
            self.add_error(name if name in self.fields else None, _flat(problems))
        return self.cleaned_data


def _flat(problems: Any) -> list[str]:
    """The sentences of a serializer's errors; those of list members stand below the member's index."""
    if isinstance(problems, dict):
        return [sentence for inner in problems.values() for sentence in _flat(inner)]
    return [str(sentence) for sentence in problems]


def text(label: Any, *, most: int, required: bool = True, help_text: Any = "") -> forms.CharField:
    """One line."""
    return forms.CharField(
        label=label, max_length=most, required=required, help_text=help_text, widget=UnfoldAdminTextInputWidget()
    )


def lines(label: Any, *, most: int, required: bool = True, help_text: Any = "") -> forms.CharField:
    """Several lines."""
    return forms.CharField(
        label=label,
        max_length=most,
        required=required,
        help_text=help_text,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
    )


def address() -> forms.CharField:
    """An e-mail address; its form is checked by the API's shape."""
    return forms.CharField(label=_("E-mail"), max_length=254, widget=UnfoldAdminEmailInputWidget())


def boxes(label: Any, help_text: Any = "") -> forms.MultipleChoiceField:
    """Any number of choices."""
    return forms.MultipleChoiceField(
        label=label, required=False, help_text=help_text, widget=UnfoldAdminCheckboxSelectMultipleWidget()
    )


class ClientChoice(forms.Form):
    """Through which of the tenant's applications somebody comes."""

    client_id = forms.ChoiceField(label=_("Client"), widget=UnfoldAdminSelectWidget())

    def __init__(self, *args: Any, clients: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["client_id"].choices = clients  # type: ignore[attr-defined]  # it is a ChoiceField


def clients_of(tenant_id: Any) -> list[tuple[str, str]]:
    """The tenant's active clients, the default one first."""
    rows = Client.objects.filter(tenant_id=tenant_id, active=True).order_by("-is_default", "name")[:MOST_BOXES]
    return [(str(client.pk), client.name) for client in rows]


def role_names() -> list[tuple[str, str]]:
    """The roles of the tenant that is entered, by name."""
    return [(name, name) for name in Role.objects.order_by("name").values_list("name", flat=True)[:MOST_BOXES]]


class EndUserForm(Shaped):
    """Name, address and metadata of a person."""

    shape = EndUserChanges
    name = text(_("Name"), most=255, required=False)
    email = address()
    metadata = Members(
        label=_("Metadata"),
        required=False,
        help_text=_("A JSON object of your applications' own; replaced whole."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 6, "class": "people-code"}),
    )

    def members(self) -> dict[str, Any]:
        return {**self.cleaned_data, "metadata": self.cleaned_data["metadata"] or {}}


class RegisterForm(ClientChoice, Shaped):
    """A new person with a first password."""

    shape = RegisterIn
    email = address()
    name = text(_("Name"), most=255, required=False)
    password = forms.CharField(
        label=_("First password"),
        max_length=1024,
        strip=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        help_text=_("Tell it on a safe way, or send an invitation instead: then the person chooses it."),
    )
    field_order = ("email", "name", "client_id", "password")

    def __init__(self, *args: Any, tenant_id: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tenant_id = tenant_id

    def members(self) -> dict[str, Any]:
        return {**super().members(), "tenant_id": str(self.tenant_id)}


class InviteForm(ClientChoice, Shaped):
    """Whom to invite, through which client and with which roles."""

    shape = InvitationIn
    email = address()
    roles = boxes(_("Roles"), _("Besides the role that everybody has."))
    field_order = ("email", "client_id", "roles")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["roles"].choices = role_names()  # type: ignore[attr-defined]  # it is a MultipleChoiceField

    def members(self) -> dict[str, Any]:
        return {**super().members(), "kind": "end_user"}


class ReasonForm(forms.Form):
    """Why somebody's factors are removed."""

    reason = lines(_("Reason"), most=500, help_text=_("Kept in the audit trail. Name no personal data."))


class ChosenForm(forms.Form):
    """A set of things that somebody has, as boxes. Only what is changed here changes: what somebody else changes at the
    same time stays as they left it."""

    chosen = boxes("")
    was = forms.CharField(required=False, widget=forms.HiddenInput())

    def __init__(self, *args: Any, label: Any, choices: list[tuple[str, str]], had: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["chosen"].label = label
        self.fields["chosen"].choices = choices  # type: ignore[attr-defined]  # it is a MultipleChoiceField
        self.initial = {"chosen": had, "was": ",".join(had)}

    def clean(self) -> dict[str, Any]:
        """`added` and `removed`: what differs from what the form was drawn with."""
        known = {key for key, _ in self.fields["chosen"].choices}  # type: ignore[attr-defined]  # it has choices
        was = set(self.cleaned_data.get("was", "").split(",")) & known
        chosen = set(self.cleaned_data.get("chosen", []))
        return {"added": sorted(chosen - was), "removed": sorted(was - chosen)}


def group_choices() -> list[tuple[str, str]]:
    """The groups of the tenant that is entered, by name."""
    return [(str(key), name) for key, name in Group.objects.order_by("name").values_list("pk", "name")[:MOST_BOXES]]


def role_choices() -> list[tuple[str, str]]:
    """The roles of the tenant that is entered, by name."""
    return [(str(key), name) for key, name in Role.objects.order_by("name").values_list("pk", "name")[:MOST_BOXES]]


class GroupForm(Shaped):
    """A group: its name and the roles that it carries."""

    shape = GroupIn
    name = text(_("Name"), most=255)
    description = text(_("Description"), most=1000, required=False)
    roles = boxes(_("Roles of the members"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["roles"].choices = role_names()  # type: ignore[attr-defined]  # it is a MultipleChoiceField

    def members(self) -> dict[str, Any]:
        return dict(self.cleaned_data)


class RoleForm(Shaped):
    """A role: its name and its permissions, one a line."""

    shape = RoleIn
    name = text(_("Name"), most=63)
    description = text(_("Description"), most=1000, required=False)
    permissions = forms.CharField(
        label=_("Permissions"),
        required=False,
        help_text=_("One a line, each resource:action, such as invoices:approve."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8, "class": "people-code"}),
    )

    def members(self) -> dict[str, Any]:
        return {**self.cleaned_data, "permissions": self.cleaned_data["permissions"].split()}


class ChosenUsersForm(forms.Form):
    """Some of the people that a search has found."""

    chosen = boxes(_("People"))

    def __init__(self, *args: Any, choices: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["chosen"].choices = choices  # type: ignore[attr-defined]  # it is a MultipleChoiceField

    def clean_chosen(self) -> list[str]:
        """At least one."""
        chosen: list[str] = self.cleaned_data["chosen"]
        if not chosen:
            raise forms.ValidationError(_("Choose at least one person."))
        return chosen
