"""Groups and roles: their pages, and the pages that change them and add or remove members."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar
from uuid import UUID

from django import forms as django_forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame.access import Context, staff_at
from console.frame.confirm import CreateView, EditView, RowView, TenantConfirmView, TypedDeleteView
from console.frame.records import Text, render_page, with_encoded_form
from console.frame.tenant_pages import tenant_page
from console.people import forms
from console.people.end_user import EndUserConfirmView
from console.people.lists import matching
from console.people.lists import newest_matching as newest_matching
from identity_platform.api.errors import NotFound
from identity_platform.api.views import Arguments
from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.row_errors import first_or
from tenants.entering.context import tenant_atomic
from tenants.models import Tenant
from userflow.accounts.members import Members
from userflow.accounts.models import EndUser, Group, GroupMembership, Role, RoleBinding
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION
from userflow.errors import UnknownGroup, UnknownRoleId
from userflow.groups import actions as group_actions
from userflow.roles import actions as role_actions
from userflow.sessions.assurance import Action

ON_A_PAGE: Final = 50
FOUND: Final = 20

Row = TypeVar("Row", Group, Role)


@dataclass(frozen=True, slots=True)
class Kind(Generic[Row]):
    """Groups or roles: their rows, the rows that name their members, and the actions that change these."""

    # The name of the id, in paths and in actions.
    key: str
    rows: QuerySet[Row]
    unknown: type[NotFound]
    memberships: Members
    add: Callable[..., int]
    remove: Callable[..., int]

    def find(self, key: UUID) -> Row:
        """Return the group or role of the entered tenant. Raises UnknownGroup, UnknownRoleId."""
        return first_or(self.rows.filter(pk=key), self.unknown)


GroupsOrRoles = Kind[Group] | Kind[Role]


class MemberSearch(django_forms.Form):
    q = django_forms.CharField(max_length=254, required=False, strip=True)
    before = django_forms.IntegerField(required=False, min_value=1)


def members_page(request: HttpRequest, memberships: Members) -> Context:
    """Return the requested page of members, newest first. Its cost does not depend on their number.

    `next` is where the next page begins, None on the last page.
    """
    search = MemberSearch(request.GET)
    search.is_valid()
    words, before = search.cleaned_data.get("q", ""), search.cleaned_data.get("before")
    if words:
        # Search among the members only: a search among all users that finds many could leave the members out.
        within = EndUser.objects.filter(pk__in=memberships.values_list("user_id", flat=True))
        memberships = memberships.filter(user_id__in=newest_matching(within, words))
    if before:
        memberships = memberships.filter(pk__lt=before)
    rows = list(memberships.select_related("user").order_by("-pk")[: ON_A_PAGE + 1])
    following = rows[ON_A_PAGE - 1].pk if len(rows) > ON_A_PAGE else None
    return {"rows": rows[:ON_A_PAGE], "q": words, "next": following}


class KindView(RowView[Group | Role], TenantConfirmView):
    kind: ClassVar[GroupsOrRoles]

    def find(self) -> Group | Role:
        return self.kind.find(self.kwargs[self.kind.key])

    def arguments(self) -> Arguments:
        return {"tenant_id": self.tenant.pk, "by": self.staff.principal, self.kind.key: self.row.pk}


class AddMembersView(KindView):
    """Find end users by a search and add those that are chosen. The search reads end users and is audited as such."""

    action = Action.GRANT_ROLES
    form_class = forms.ChosenUsersForm
    submit = _("Add")
    dangerous = False
    template_name = "console/people/add_members.html"

    def load(self) -> None:
        super().load()
        if self.request.method != "POST":
            filters = ["q"] if "q" in self.request.GET else []
            record_for_tenant("end_user.listed", details={"console": True, "filters": filters})
        search = MemberSearch(self.request.GET)
        search.is_valid()
        self.words = search.cleaned_data.get("q", "")
        self.matches: list[tuple[UUID, str, str]] = []
        if self.words:
            members = self.kind.memberships.filter(**{self.kind.key: self.row.pk}).values_list("user_id", flat=True)
            others = matching(EndUser.objects.all(), self.words).exclude(pk__in=members)
            self.matches = list(others.order_by("email_key").values_list("pk", "email", "name")[:FOUND])

    def get_form_kwargs(self) -> Context:
        choices = [
            (str(key), format_html("{} · {}", with_encoded_form(email), name) if name else with_encoded_form(email))
            for key, email, name in self.matches
        ]
        return {**super().get_form_kwargs(), "choices": choices}

    def get_context_data(self, **kwargs: object) -> Context:
        return {**super().get_context_data(**kwargs), "q": self.words, "found": self.matches, "most": FOUND}

    def act(self, form: django_forms.Form) -> Text:
        number = self.kind.add(**self.arguments(), user_ids=[UUID(key) for key in form.cleaned_data["chosen"]])
        return ngettext("%(number)s user is added.", "%(number)s users are added.", number) % {"number": number}


class RemoveMemberView(EndUserConfirmView):
    """Remove one end user from a group or role, and go to its page."""

    dangerous = False
    kind: ClassVar[GroupsOrRoles]

    def load(self) -> None:
        super().load()
        self.target: Group | Role = self.kind.find(self.kwargs[self.kind.key])

    def names(self) -> Context:
        return {**super().names(), "name": self.target.name}

    def get_back_url(self) -> str:
        return reverse(self.page, args=[self.target.pk])

    def act(self, form: django_forms.Form) -> Text:
        users = {self.kind.key: self.target.pk, "user_ids": [self.row.pk]}
        self.kind.remove(tenant_id=self.tenant.pk, by=self.staff.principal, **users)
        return str(self.done) % self.names()


class EndUserMembershipsView(EndUserConfirmView):
    """Choose all groups or direct roles of one end user. Only what is changed in the form changes."""

    action = Action.GRANT_ROLES
    form_class = forms.ChosenForm
    submit = _("Save")
    dangerous = False
    kind: ClassVar[GroupsOrRoles]

    def get_form_kwargs(self) -> Context:
        rows = self.kind.rows.order_by("name").values_list("pk", "name")[: forms.MOST_BOXES]
        had = self.kind.memberships.filter(user=self.row).values_list(self.kind.key, flat=True)
        choices = [(str(key), name) for key, name in rows]
        return {**super().get_form_kwargs(), "label": self.title, "choices": choices, "had": [str(key) for key in had]}

    def act(self, form: django_forms.Form) -> Text:
        added, removed = form.cleaned_data["added"], form.cleaned_data["removed"]
        # All changes or none.
        with tenant_atomic():
            for change, keys in ((self.kind.add, added), (self.kind.remove, removed)):
                for key in keys:
                    users = {self.kind.key: UUID(key), "user_ids": [self.row.pk]}
                    change(tenant_id=self.tenant.pk, by=self.staff.principal, **users)
        return self.done if added or removed else _("Nothing was changed.")


GROUPS: Final = Kind(
    "group_id",
    Group.objects.prefetch_related("roles"),
    UnknownGroup,
    GroupMembership.objects.all(),
    add=group_actions.add_members,
    remove=group_actions.remove_members,
)


@tenant_page("groups:read")
def show_group(request: HttpRequest, tenant: Tenant, group_id: UUID) -> HttpResponse:
    """A group with its roles and, with the permission to read end users, its members."""
    group, staff = GROUPS.find(group_id), staff_at(request)
    record_for_tenant("group.viewed", target=("group", group.pk), details={"console": True})
    memberships = GroupMembership.objects.filter(group_id=group.pk)
    return render_page(
        request,
        "console/people/group.html",
        group.name,
        {
            "group": group,
            "roles": sorted(group.roles.all(), key=lambda role: role.name.lower()),
            "members": members_page(request, memberships) if staff.may("endusers:read") else None,
            "may_write": staff.may("groups:write"),
            "may_see_roles": staff.may("roles:read"),
            "tenant": tenant,
        },
    )


class GroupView:
    kind: ClassVar[GroupsOrRoles] = GROUPS
    permissions: ClassVar[tuple[str, ...]] = ("groups:read", "groups:write")
    page = "admin:group"
    list_page = "admin:userflow_group_changelist"


class GroupMembersView(GroupView):
    permissions = (*GroupView.permissions, "endusers:read")


class CreateGroup(GroupView, CreateView[Group], TenantConfirmView):
    call = staticmethod(group_actions.create_group)
    action = Action.GRANT_ROLES
    title = _("Add group")
    text = _("A group gives its roles to all members. You can give only permissions that you hold yourself.")
    form_class = forms.GroupForm
    done = _("The group is created. Add its first members.")


class EditGroup(GroupView, EditView[Group | Role], KindView):
    action = Action.GRANT_ROLES
    call = staticmethod(group_actions.update_group)
    title = _("Edit group")
    text = _("Added and removed roles apply to all members from their next request on.")
    form_class = forms.GroupForm
    done = _("The group is saved.")

    def get_initial(self) -> Context:
        return {**super().get_initial(), "roles": sorted(role.name for role in GROUPS.find(self.row.pk).roles.all())}


class DeleteGroup(GroupView, TypedDeleteView[Group | Role], KindView):
    call = staticmethod(group_actions.delete_group)
    title = _("Delete group")
    text = _("All members lose its roles from their next request on. The members themselves stay.")
    done = _("The group is deleted.")


class AddMembers(GroupMembersView, AddMembersView):
    title = _("Add members to %(name)s")
    text = _("Members have the roles of the group from their next request on.")


class RemoveMember(GroupMembersView, RemoveMemberView):
    title = _("Remove from %(name)s")
    text = _("%(email)s loses the roles of the group from the next request on.")
    done = _("%(email)s is removed from the group.")


class EndUserGroups(GroupMembersView, EndUserMembershipsView):
    title = _("Groups")
    text = _("The groups of %(email)s. Changes apply from the next request on.")
    done = _("The groups are saved.")


ROLES: Final = Kind(
    "role_id",
    Role.objects.all(),
    UnknownRoleId,
    RoleBinding.objects.all(),
    add=role_actions.bind_users,
    remove=role_actions.unbind_users,
)


@tenant_page("roles:read")
def show_role(request: HttpRequest, tenant: Tenant, role_id: UUID) -> HttpResponse:
    """A role with its permissions and groups and, with the permission to read end users, its direct holders."""
    role, staff = ROLES.find(role_id), staff_at(request)
    record_for_tenant("role.viewed", target=("role", role.pk), details={"console": True})
    bindings = RoleBinding.objects.filter(role=role)
    return render_page(
        request,
        "console/people/role.html",
        role.name,
        {
            "role": role,
            "permissions": [(permission, permission in EVERY_PERMISSION) for permission in role.permissions],
            "groups": list(role.groups.order_by("name")[:ON_A_PAGE]) if staff.may("groups:read") else None,
            "members": members_page(request, bindings) if staff.may("endusers:read") else None,
            "may_write": staff.may("roles:write"),
            "tenant": tenant,
        },
    )


class RoleView:
    kind: ClassVar[GroupsOrRoles] = ROLES
    permissions: ClassVar[tuple[str, ...]] = ("roles:read", "roles:write")
    page = "admin:role"
    list_page = "admin:userflow_role_changelist"


class RoleMembersView(RoleView):
    permissions = (*RoleView.permissions, "endusers:read")


class CreateRole(RoleView, CreateView[Role], TenantConfirmView):
    call = staticmethod(role_actions.create_role)
    title = _("Add role")
    text = _(
        "Permissions of your own applications can be chosen freely; those of the platform only if you hold them yourself."
    )
    form_class = forms.RoleForm
    done = _("The role is created. Give it to users or to a group.")


class EditRole(RoleView, EditView[Group | Role], KindView):
    action = Action.GRANT_ROLES
    call = staticmethod(role_actions.update_role)
    title = _("Edit role")
    text = _("The change applies to everyone who has the role from their next request on.")
    form_class = forms.RoleForm
    done = _("The role is saved.")


class DeleteRole(RoleView, TypedDeleteView[Group | Role], KindView):
    call = staticmethod(role_actions.delete_role)
    title = _("Delete role")
    text = _("Everyone who has it loses it from the next request on, and it is removed from all groups.")
    done = _("The role is deleted.")


class AddHolders(RoleMembersView, AddMembersView):
    title = _("Add users to the role %(name)s")
    text = _("They have its permissions from their next request on.")


class RemoveHolder(RoleMembersView, RemoveMemberView):
    title = _("Remove the role %(name)s")
    text = _("%(email)s loses it from the next request on, unless a group also gives it.")
    done = _("The role is removed from %(email)s.")


class EndUserRoles(RoleMembersView, EndUserMembershipsView):
    """Choose the direct roles of an end user; roles from groups stay."""

    title = _("Roles")
    text = _("The direct roles of %(email)s. Roles from groups are changed at the groups.")
    done = _("The roles are saved.")
