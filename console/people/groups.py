"""Groups: the page of a group, and the changes to it and its members."""

from collections.abc import Collection
from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import staff_at
from console.frame.confirm import TenantConfirmView, TypedName
from console.frame.forms import Fields
from console.frame.records import Text
from console.frame.tenant_pages import tenant_page
from console.people import forms
from console.people.memberships import (
    AddMembersView,
    EndUserMembershipsView,
    Memberships,
    MembershipView,
    RemoveMemberView,
    members_page,
)
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.accounts.models import Group, GroupMembership
from userflow.errors import UnknownGroup
from userflow.groups import actions
from userflow.sessions.assurance import Action

LIST = "admin:userflow_group_changelist"
READ_AND_WRITE = ("groups:read", "groups:write")


def find_group(group_id: UUID) -> Group:
    """Return the group of the entered tenant. Raises UnknownGroup."""
    group = Group.objects.prefetch_related("roles").filter(pk=group_id).first()
    if group is None:
        raise UnknownGroup
    return group


@tenant_page("groups:read")
def show(request: HttpRequest, tenant: Tenant, group_id: UUID) -> HttpResponse:
    """A group with its roles and, with the permission to read end users, its members."""
    group, staff = find_group(group_id), staff_at(request)
    record_for_tenant("group.viewed", target=("group", group.pk), details={"console": True})
    memberships = GroupMembership.objects.filter(group=group)
    context = {
        **admin.site.each_context(request),
        "title": group.name,
        "group": group,
        "roles": sorted(group.roles.all(), key=lambda role: role.name.lower()),
        "members": members_page(request, memberships) if staff.may("endusers:read") else None,
        "may_write": staff.may("groups:write"),
        "may_see_roles": staff.may("roles:read"),
        "tenant": tenant,
    }
    return TemplateResponse(request, "console/people/group.html", context)


class CreateGroup(TenantConfirmView):
    """Create a group."""

    permissions = READ_AND_WRITE
    action = Action.GRANT_ROLES
    title = _("New group")
    text = _("A group gives its roles to all members. You can give only permissions that you hold yourself.")
    submit = _("Create group")
    dangerous = False
    form_class = forms.GroupForm

    created: Group

    def get_back_url(self) -> str:
        return reverse(LIST)

    def act(self, fields: Fields) -> Text:
        self.created = actions.create_group(tenant_id=self.tenant.pk, by=self.staff.principal, **fields)
        return _("The group is created. Add its first members.")

    def get_success_url(self) -> str:
        return reverse("admin:group", args=[self.created.pk])


class GroupConfirmView(TenantConfirmView):
    """A page that changes one group."""

    permissions = READ_AND_WRITE
    group: Group

    def load(self) -> None:
        self.group = find_group(self.kwargs["group_id"])

    def get_back_url(self) -> str:
        return reverse("admin:group", args=[self.group.pk])


class EditGroup(GroupConfirmView):
    """Change a group's name, description or roles."""

    action = Action.GRANT_ROLES
    title = _("Edit group")
    text = _("Added and removed roles apply to all members from their next request on.")
    submit = _("Save")
    dangerous = False
    form_class = forms.GroupForm

    def get_initial(self) -> Fields:
        roles = sorted(role.name for role in self.group.roles.all())
        return {"name": self.group.name, "description": self.group.description, "roles": roles}

    def act(self, fields: Fields) -> Text:
        before = self.get_initial()
        changes = {name: value for name, value in fields.items() if name in before and value != before[name]}
        actions.update_group(tenant_id=self.tenant.pk, by=self.staff.principal, group_id=self.group.pk, changes=changes)
        return _("The group is saved.")


class DeleteGroup(GroupConfirmView):
    """Delete a group."""

    title = _("Delete group")
    text = _("All members lose its roles from their next request on. The members themselves stay.")
    form_class = TypedName

    def get_form_kwargs(self) -> Fields:
        return {**super().get_form_kwargs(), "wanted": self.group.name}

    def act(self, fields: Fields) -> Text:
        actions.delete_group(tenant_id=self.tenant.pk, by=self.staff.principal, group_id=self.group.pk)
        return _("The group is deleted.")

    def get_success_url(self) -> str:
        return reverse(LIST)


class GroupMembershipView(MembershipView):
    """How end users are added to groups and removed from them."""

    permissions = (*READ_AND_WRITE, "endusers:read")
    target_page = "admin:group"
    key = "group_id"

    def find(self, key: UUID) -> Group:
        return find_group(key)

    def memberships(self) -> Memberships:
        return GroupMembership.objects.filter(group_id=self.target.pk)

    def add(self, key: UUID, user_ids: Collection[UUID]) -> int:
        return actions.add_members(tenant_id=self.tenant.pk, by=self.staff.principal, group_id=key, user_ids=user_ids)

    def remove(self, key: UUID, user_ids: Collection[UUID]) -> int:
        return actions.remove_members(
            tenant_id=self.tenant.pk, by=self.staff.principal, group_id=key, user_ids=user_ids
        )


class AddMembers(GroupMembershipView, AddMembersView):
    """Add end users to a group."""

    title = _("Add members to %(name)s")
    text = _("Members have the roles of the group from their next request on.")


class RemoveMember(GroupMembershipView, RemoveMemberView):
    """Remove an end user from a group."""

    title = _("Remove from %(name)s")
    text = _("%(email)s loses the roles of the group from the next request on.")
    done = _("%(email)s is removed from the group.")


class EndUserGroups(GroupMembershipView, EndUserMembershipsView):
    """Choose the groups of an end user."""

    title = _("Groups")
    text = _("The groups of %(email)s. Changes apply from the next request on.")
    done = _("The groups are saved.")

    def choices(self) -> list[tuple[str, str]]:
        return forms.group_choices()

    def current(self) -> Collection[UUID]:
        return list(GroupMembership.objects.filter(user=self.end_user).values_list("group_id", flat=True))
