"""Roles: the page of one, and what can be done to it."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from console.frame.access import staff_at
from console.frame.confirm import TypedName, confirmed
from console.frame.tenant_pages import inside
from console.people import forms, memberships
from console.people.end_user import of_person
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.accounts.models import EndUser, Role, RoleBinding
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION
from userflow.errors import UnknownRoleId
from userflow.roles import actions
from userflow.sessions.assurance import Action

LIST = "admin:userflow_role_changelist"


def _found(role_id: UUID) -> Role:
    role = Role.objects.filter(pk=role_id).first()
    if role is None:
        raise UnknownRoleId
    return role


@inside("roles:read")
def role(request: HttpRequest, tenant: Tenant, role_id: UUID) -> HttpResponse:
    """A role with its permissions, the groups that carry it and, for those who may see people, who is bound to it."""
    shown, staff = _found(role_id), staff_at(request)
    record_for_tenant("role.viewed", target=("role", shown.pk), details={"console": True})
    bonds = RoleBinding.objects.filter(role=shown)
    context = {
        **admin.site.each_context(request),
        "title": shown.name,
        "role": shown,
        "permissions": [(permission, permission in EVERY_PERMISSION) for permission in shown.permissions],
        "groups": list(shown.groups.order_by("name")[: memberships.ON_A_PAGE]) if staff.may("groups:read") else None,
        "members": memberships.page_of(request, bonds) if staff.may("endusers:read") else None,
        "may_write": staff.may("roles:write"),
        "tenant": tenant,
    }
    return TemplateResponse(request, "console/people/role.html", context)


@inside("roles:read", "roles:write")
def create(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Make a role."""
    made: list[Role] = []

    def act(fields: dict[str, Any]) -> str:
        made.append(actions.create_role(tenant_id=tenant.pk, by=staff_at(request).principal, **fields))
        return _("The role is made: give it to people, or let a group carry it.")

    return confirmed(
        request,
        title=_("New role"),
        text=_(
            "Permissions of your applications' own can be chosen freely; those of the platform only if you hold them."
        ),
        back=reverse(LIST),
        action=None,
        act=act,
        form_class=forms.RoleForm,
        submit=_("Make the role"),
        onward=lambda: reverse("admin:role", args=[made[0].pk]),
        dangerous=False,
        tenant=tenant,
    )


@inside("roles:read", "roles:write")
def edit(request: HttpRequest, tenant: Tenant, role_id: UUID) -> HttpResponse:
    """Change a role's name, description or permissions."""
    shown = _found(role_id)
    before = {"name": shown.name, "description": shown.description, "permissions": shown.permissions}

    def act(fields: dict[str, Any]) -> str:
        changes = {name: value for name, value in fields.items() if name in before and value != before[name]}
        actions.update_role(tenant_id=tenant.pk, by=staff_at(request).principal, role_id=shown.pk, changes=changes)
        return _("The role is changed.")

    return confirmed(
        request,
        title=_("Change the role"),
        text=_("The change counts for everybody who has the role from their next request on."),
        back=reverse("admin:role", args=[shown.pk]),
        action=Action.GRANT_ROLES,
        act=act,
        form_class=forms.RoleForm,
        form_options={"initial": {**before, "permissions": "\n".join(shown.permissions)}},
        submit=_("Save"),
        dangerous=False,
        tenant=tenant,
    )


@inside("roles:read", "roles:write")
def delete(request: HttpRequest, tenant: Tenant, role_id: UUID) -> HttpResponse:
    """Remove a role."""
    shown = _found(role_id)

    def act(_fields: dict[str, Any]) -> str:
        actions.delete_role(tenant_id=tenant.pk, by=staff_at(request).principal, role_id=shown.pk)
        return _("The role is deleted.")

    return confirmed(
        request,
        title=_("Delete the role"),
        text=_("Everybody who has it loses it at the next request, and no group carries it any more."),
        back=reverse("admin:role", args=[shown.pk]),
        action=None,
        act=act,
        form_class=TypedName,
        form_options={"wanted": shown.name},
        onward=lambda: reverse(LIST),
        tenant=tenant,
    )


@inside("roles:read", "roles:write", "endusers:read")
def add_members(request: HttpRequest, tenant: Tenant, role_id: UUID) -> HttpResponse:
    """Find people and give them the role."""
    shown = _found(role_id)
    return memberships.add_members(
        request,
        tenant,
        title=_("Give the role %(name)s") % {"name": shown.name},
        text=_("They have its permissions from their next request on."),
        back=reverse("admin:role", args=[shown.pk]),
        bonds=RoleBinding.objects.filter(role=shown),
        add=lambda ids: actions.bind_users(
            tenant_id=tenant.pk, by=staff_at(request).principal, role_id=shown.pk, user_ids=ids
        ),
    )


@of_person("roles:read", "roles:write")
def take_away(request: HttpRequest, tenant: Tenant, user: EndUser, *, role_id: UUID) -> HttpResponse:
    """Take the role away from a person."""
    shown = _found(role_id)

    def act(_fields: dict[str, Any]) -> str:
        actions.unbind_users(tenant_id=tenant.pk, by=staff_at(request).principal, role_id=shown.pk, user_ids=[user.pk])
        return _("%(email)s does not have the role any more.") % {"email": user.email}

    return confirmed(
        request,
        title=_("Take away the role %(name)s") % {"name": shown.name},
        text=_("%(email)s loses it at the next request, but for groups that carry it.") % {"email": user.email},
        back=reverse("admin:role", args=[shown.pk]),
        action=None,
        act=act,
        dangerous=False,
        tenant=tenant,
    )
