"""Changes of several end users that were selected in the list: confirm, call the action of one user for each, report."""

from typing import Final, Unpack
from uuid import UUID

from django.db import OperationalError
from django.forms import Form
from django.http import HttpResponse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame.access import Context
from console.frame.confirm import TenantConfirmView
from console.frame.forms import FormOptions, Pick, set_choices
from console.frame.lists import uuid_or_none
from console.frame.records import Table, Text, record_page
from console.people.forms import MOST_BOXES
from identity_platform.api.errors import ApiError
from identity_platform.api.handlers import as_api_error
from identity_platform.audit.writer import record_for_tenant
from userflow.accounts.models import EndUser, Group
from userflow.endusers.actions import set_end_user_active
from userflow.errors import InsufficientAuthentication
from userflow.groups.actions import add_members
from userflow.sessions.actions import end_all_sessions
from userflow.sessions.assurance import Action

# More than the list shows on a page.
MOST_SELECTED: Final = 100
SELECTED: Final = "selected"


class SelectedUsersView(TenantConfirmView):
    """A page about the users whose ids are in the field `selected`, separated by commas."""

    list_page = "admin:userflow_enduser_changelist"
    template_name = "console/people/selected.html"
    users: list[EndUser]

    def load(self) -> None:
        super().load()
        sent = self.request.POST if self.request.method == "POST" else self.request.GET
        ids = [key for text in sent.get(SELECTED, "").split(",") if (key := uuid_or_none(text)) is not None]
        self.is_too_many = len(ids) > MOST_SELECTED
        # Users of another tenant are not found here.
        self.users = list(EndUser.objects.filter(pk__in=ids[:MOST_SELECTED]).order_by("email_key"))
        self.gone = sorted(set(ids[:MOST_SELECTED]) - {user.pk for user in self.users})
        self.failures: list[tuple[str, Text]] = [(str(key), _("This user no longer exists.")) for key in self.gone]
        if self.request.method != "POST":
            record_for_tenant("end_user.listed", details={"console": True, "filters": [SELECTED]})

    def hidden_fields(self) -> dict[str, str]:
        return {SELECTED: ",".join(str(user.pk) for user in self.users)}

    def names(self) -> Context:
        return {**super().names(), "number": len(self.users)}

    def get_form(self, form_class: type[Form] | None = None) -> Form:
        form = super().get_form(form_class)
        if self.is_too_many:
            form.add_error(None, _("Select at most %(number)s users at a time.") % {"number": MOST_SELECTED})
        elif form.is_bound and self.gone and not self.users:
            form.add_error(None, _("The selected users no longer exist. Select others in the list."))
        elif form.is_bound and not self.users:
            form.add_error(None, _("Select at least one user in the list."))
        return form

    def change(self, user: EndUser) -> None:
        """Call the action for one user."""
        raise NotImplementedError

    def act(self, form: Form) -> Text:
        for index, user in enumerate(self.users):
            try:
                self.change(user)
            except InsufficientAuthentication:
                raise
            except ApiError as error:
                self.failures.append((user.email, error.text))
            except OperationalError as problem:
                # The others would wait for the database for as long.
                reason = as_api_error(problem).text
                self.failures += [(remaining_user.email, reason) for remaining_user in self.users[index:]]
                break
        return self.report(len(self.users) + len(self.gone) - len(self.failures))

    def report(self, number: int) -> str:
        """Return the sentence that tells for how many users the change succeeded."""
        raise NotImplementedError

    def get_context_data(self, **kwargs: object) -> Context:
        return {**super().get_context_data(**kwargs), "users": self.users, "gone": len(self.gone)}

    def respond(self) -> HttpResponse:
        """Go to the list, or name the users who were not changed, each with the reason."""
        if not self.failures:
            return super().respond()
        table = Table(title=_("Not changed"), headers=(_("E-mail address"), _("Reason")), rows=self.failures, empty="")
        return record_page(self.request, self.title, tables=[table], back=self.get_back_url())


class DeactivateSelected(SelectedUsersView):
    permissions = ("endusers:read", "endusers:write")
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Deactivate users")
    text = _("These users are signed out everywhere and cannot sign in any more. All data is kept.")
    submit = _("Deactivate")

    def change(self, user: EndUser) -> None:
        set_end_user_active(tenant_id=self.tenant.pk, user_id=user.pk, active=False, by=self.staff.principal)

    def report(self, number: int) -> str:
        return ngettext("%(number)s user is deactivated.", "%(number)s users are deactivated.", number) % {
            "number": number
        }


class EndSessionsOfSelected(SelectedUsersView):
    permissions = ("endusers:read", "sessions:write")
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("End sessions of users")
    text = _("These users are signed out everywhere and can sign in again.")
    submit = _("End sessions")
    dangerous = False

    def change(self, user: EndUser) -> None:
        end_all_sessions(tenant_id=self.tenant.pk, user_id=user.pk, by=self.staff.principal)

    def report(self, number: int) -> str:
        return ngettext("%(number)s user is signed out.", "%(number)s users are signed out.", number) % {
            "number": number
        }


class GroupForm(Form):
    group = Pick(label=_("Group"))

    def __init__(self, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        groups = Group.objects.order_by("name").values_list("pk", "name")[:MOST_BOXES]
        set_choices(self, "group", [(str(key), name) for key, name in groups])


class AddSelectedToGroup(SelectedUsersView):
    """Add all of the users with one call: all of them or none."""

    permissions = ("endusers:read", "groups:read", "groups:write")
    action = Action.GRANT_ROLES
    title = _("Add users to a group")
    text = _("These users have the roles of the group from their next request on.")
    submit = _("Add to group")
    dangerous = False
    form_class = GroupForm

    def act(self, form: Form) -> Text:
        ids = [user.pk for user in self.users]
        group_id = UUID(form.cleaned_data["group"])
        return self.report(
            add_members(tenant_id=self.tenant.pk, by=self.staff.principal, group_id=group_id, user_ids=ids)
        )

    def report(self, number: int) -> str:
        return ngettext("%(number)s user is added.", "%(number)s users are added.", number) % {"number": number}


# By the names of the pages.
PAGES: Final[dict[str, type[SelectedUsersView]]] = {
    "deactivate_people": DeactivateSelected,
    "end_sessions_of_people": EndSessionsOfSelected,
    "add_people_to_group": AddSelectedToGroup,
}
