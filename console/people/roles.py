"""Roles: the page of a role, and the pages that change it and its holders."""

from typing import ClassVar, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from console.frame.access import staff_at
from console.frame.confirm import CreateView, EditView, TenantConfirmView, TypedDeleteView
from console.frame.records import render_page
from console.frame.tenant_pages import tenant_page
from console.people import forms
from console.people.memberships import (
    ON_A_PAGE,
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
from userflow.accounts.models import Group, Role, RoleBinding
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION
from userflow.errors import UnknownRoleId
from userflow.roles import actions
from userflow.sessions.assurance import Action

ROLES: Final = Kind(
    "role_id",
    Role.objects.all(),
    UnknownRoleId,
    RoleBinding.objects.all(),
    add=actions.bind_users,
    remove=actions.unbind_users,
)


@tenant_page("roles:read")
def show(request: HttpRequest, tenant: Tenant, role_id: UUID) -> HttpResponse:
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
    """What the pages that change a role share."""

    kind: ClassVar[GroupsOrRoles] = ROLES
    permissions: ClassVar[tuple[str, ...]] = ("roles:read", "roles:write")
    page = "admin:role"
    list_page = "admin:userflow_role_changelist"


class CreateRole(RoleView, CreateView[Role], TenantConfirmView):
    call = staticmethod(actions.create_role)
    title = _("Add role")
    text = _(
        "Permissions of your own applications can be chosen freely; those of the platform only if you hold them yourself."
    )
    form_class = forms.RoleForm
    done = _("The role is created. Give it to users or to a group.")


class EditRole(RoleView, EditView[Group | Role], KindView):
    """Change a role's name, description or permissions."""

    action = Action.GRANT_ROLES
    call = staticmethod(actions.update_role)
    title = _("Edit role")
    text = _("The change applies to everyone who has the role from their next request on.")
    form_class = forms.RoleForm
    done = _("The role is saved.")


class DeleteRole(RoleView, TypedDeleteView[Group | Role], KindView):
    call = staticmethod(actions.delete_role)
    title = _("Delete role")
    text = _("Everyone who has it loses it from the next request on, and it is removed from all groups.")
    done = _("The role is deleted.")


class AddHolders(RoleView, AddMembersView):
    permissions = (*RoleView.permissions, "endusers:read")
    title = _("Add users to the role %(name)s")
    text = _("They have its permissions from their next request on.")


class RemoveHolder(RoleView, RemoveMemberView):
    permissions = (*RoleView.permissions, "endusers:read")
    title = _("Remove the role %(name)s")
    text = _("%(email)s loses it from the next request on, unless a group also gives it.")
    done = _("The role is removed from %(email)s.")


class EndUserRoles(RoleView, EndUserMembershipsView):
    """Choose the direct roles of an end user; roles from groups stay."""

    permissions = (*RoleView.permissions, "endusers:read")
    title = _("Roles")
    text = _("The direct roles of %(email)s. Roles from groups are changed at the groups.")
    done = _("The roles are saved.")
