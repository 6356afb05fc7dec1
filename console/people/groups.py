"""Groups: the page of a group, and the pages that change it and its members."""

from typing import ClassVar, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, staff_at
from console.frame.confirm import CreateView, EditView, TenantConfirmView, TypedDeleteView
from console.frame.records import render_page
from console.frame.tenant_pages import tenant_page
from console.people import forms
from console.people.memberships import (
    AddMembersView,
    EndUserMembershipsView,
    GroupsOrRoles,
    Kind,
    KindView,
    RemoveMemberView,
    members_page,
)
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.accounts.models import Group, GroupMembership, Role
from userflow.errors import UnknownGroup
from userflow.groups import actions
from userflow.sessions.assurance import Action

GROUPS: Final = Kind(
    "group_id",
    Group.objects.prefetch_related("roles"),
    UnknownGroup,
    GroupMembership.objects.all(),
    add=actions.add_members,
    remove=actions.remove_members,
)


@tenant_page("groups:read")
def show(request: HttpRequest, tenant: Tenant, group_id: UUID) -> HttpResponse:
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
    """What the pages that change a group share."""

    kind: ClassVar[GroupsOrRoles] = GROUPS
    permissions: ClassVar[tuple[str, ...]] = ("groups:read", "groups:write")
    page = "admin:group"
    list_page = "admin:userflow_group_changelist"


class CreateGroup(GroupView, CreateView[Group], TenantConfirmView):
    call = staticmethod(actions.create_group)
    action = Action.GRANT_ROLES
    title = _("Add group")
    text = _("A group gives its roles to all members. You can give only permissions that you hold yourself.")
    form_class = forms.GroupForm
    done = _("The group is created. Add its first members.")


class EditGroup(GroupView, EditView[Group | Role], KindView):
    """Change a group's name, description or roles."""

    action = Action.GRANT_ROLES
    call = staticmethod(actions.update_group)
    title = _("Edit group")
    text = _("Added and removed roles apply to all members from their next request on.")
    form_class = forms.GroupForm
    done = _("The group is saved.")

    def get_initial(self) -> Context:
        return {**super().get_initial(), "roles": sorted(role.name for role in GROUPS.find(self.row.pk).roles.all())}


class DeleteGroup(GroupView, TypedDeleteView[Group | Role], KindView):
    call = staticmethod(actions.delete_group)
    title = _("Delete group")
    text = _("All members lose its roles from their next request on. The members themselves stay.")
    done = _("The group is deleted.")


class AddMembers(GroupView, AddMembersView):
    permissions = (*GroupView.permissions, "endusers:read")
    title = _("Add members to %(name)s")
    text = _("Members have the roles of the group from their next request on.")


class RemoveMember(GroupView, RemoveMemberView):
    permissions = (*GroupView.permissions, "endusers:read")
    title = _("Remove from %(name)s")
    text = _("%(email)s loses the roles of the group from the next request on.")
    done = _("%(email)s is removed from the group.")


class EndUserGroups(GroupView, EndUserMembershipsView):
    permissions = (*GroupView.permissions, "endusers:read")
    title = _("Groups")
    text = _("The groups of %(email)s. Changes apply from the next request on.")
    done = _("The groups are saved.")
