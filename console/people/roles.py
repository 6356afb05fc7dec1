"""Roles: the page of a role, and the changes to it and its holders."""

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
    ON_A_PAGE,
    AddMembersView,
    EndUserMembershipsView,
    Memberships,
    MembershipView,
    RemoveMemberView,
    members_page,
)
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.accounts.models import Role, RoleBinding
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION
from userflow.errors import UnknownRoleId
from userflow.roles import actions
from userflow.sessions.assurance import Action

LIST = "admin:userflow_role_changelist"
READ_AND_WRITE = ("roles:read", "roles:write")


def find_role(role_id: UUID) -> Role:
    """Return the role of the entered tenant. Raises UnknownRoleId."""
    role = Role.objects.filter(pk=role_id).first()
    if role is None:
        raise UnknownRoleId
    return role


@tenant_page("roles:read")
def show(request: HttpRequest, tenant: Tenant, role_id: UUID) -> HttpResponse:
    """A role with its permissions and groups and, with the permission to read end users, its direct holders."""
    role, staff = find_role(role_id), staff_at(request)
    record_for_tenant("role.viewed", target=("role", role.pk), details={"console": True})
    bindings = RoleBinding.objects.filter(role=role)
    context = {
        **admin.site.each_context(request),
        "title": role.name,
        "role": role,
        "permissions": [(permission, permission in EVERY_PERMISSION) for permission in role.permissions],
        "groups": list(role.groups.order_by("name")[:ON_A_PAGE]) if staff.may("groups:read") else None,
        "members": members_page(request, bindings) if staff.may("endusers:read") else None,
        "may_write": staff.may("roles:write"),
        "tenant": tenant,
    }
    return TemplateResponse(request, "console/people/role.html", context)


class CreateRole(TenantConfirmView):
    """Create a role."""

    permissions = READ_AND_WRITE
    title = _("New role")
    text = _(
        "Permissions of your own applications can be chosen freely; those of the platform only if you hold them yourself."
    )
    submit = _("Create role")
    dangerous = False
    form_class = forms.RoleForm

    created: Role

    def get_back_url(self) -> str:
        return reverse(LIST)

    def act(self, fields: Fields) -> Text:
        self.created = actions.create_role(tenant_id=self.tenant.pk, by=self.staff.principal, **fields)
        return _("The role is created. Give it to users or to a group.")

    def get_success_url(self) -> str:
        return reverse("admin:role", args=[self.created.pk])


class RoleConfirmView(TenantConfirmView):
    """A page that changes one role."""

    permissions = READ_AND_WRITE
    role: Role

    def load(self) -> None:
        self.role = find_role(self.kwargs["role_id"])

    def get_back_url(self) -> str:
        return reverse("admin:role", args=[self.role.pk])


class EditRole(RoleConfirmView):
    """Change a role's name, description or permissions."""

    action = Action.GRANT_ROLES
    title = _("Edit role")
    text = _("The change applies to everyone who has the role from their next request on.")
    submit = _("Save")
    dangerous = False
    form_class = forms.RoleForm

    def get_initial(self) -> Fields:
        permissions = "\n".join(self.role.permissions)
        return {"name": self.role.name, "description": self.role.description, "permissions": permissions}

    def act(self, fields: Fields) -> Text:
        before = {**self.get_initial(), "permissions": self.role.permissions}
        changes = {name: value for name, value in fields.items() if name in before and value != before[name]}
        actions.update_role(tenant_id=self.tenant.pk, by=self.staff.principal, role_id=self.role.pk, changes=changes)
        return _("The role is saved.")


class DeleteRole(RoleConfirmView):
    """Delete a role."""

    title = _("Delete role")
    text = _("Everyone who has it loses it from the next request on, and it is removed from all groups.")
    form_class = TypedName

    def get_form_kwargs(self) -> Fields:
        return {**super().get_form_kwargs(), "wanted": self.role.name}

    def act(self, fields: Fields) -> Text:
        actions.delete_role(tenant_id=self.tenant.pk, by=self.staff.principal, role_id=self.role.pk)
        return _("The role is deleted.")

    def get_success_url(self) -> str:
        return reverse(LIST)


class RoleBindingView(MembershipView):
    """How roles are given to end users and removed from them."""

    permissions = (*READ_AND_WRITE, "endusers:read")
    target_page = "admin:role"
    key = "role_id"

    def find(self, key: UUID) -> Role:
        return find_role(key)

    def memberships(self) -> Memberships:
        return RoleBinding.objects.filter(role_id=self.target.pk)

    def add(self, key: UUID, user_ids: Collection[UUID]) -> int:
        return actions.bind_users(tenant_id=self.tenant.pk, by=self.staff.principal, role_id=key, user_ids=user_ids)

    def remove(self, key: UUID, user_ids: Collection[UUID]) -> int:
        return actions.unbind_users(tenant_id=self.tenant.pk, by=self.staff.principal, role_id=key, user_ids=user_ids)


class AddHolders(RoleBindingView, AddMembersView):
    """Give a role to end users."""

    title = _("Add users to the role %(name)s")
    text = _("They have its permissions from their next request on.")


class RemoveHolder(RoleBindingView, RemoveMemberView):
    """Remove a role from an end user."""

    title = _("Remove the role %(name)s")
    text = _("%(email)s loses it from the next request on, unless a group also gives it.")
    done = _("The role is removed from %(email)s.")


class EndUserRoles(RoleBindingView, EndUserMembershipsView):
    """Choose the direct roles of an end user; roles from groups stay."""

    title = _("Roles")
    text = _("The direct roles of %(email)s. Roles from groups are changed at the groups.")
    done = _("The roles are saved.")

    def choices(self) -> list[tuple[str, str]]:
        return forms.role_choices()

    def current(self) -> Collection[UUID]:
        return list(RoleBinding.objects.filter(user=self.end_user).values_list("role_id", flat=True))
