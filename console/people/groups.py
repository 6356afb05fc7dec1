"""Groups: the page of one, and what can be done to it."""

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
from userflow.accounts.models import EndUser, Group, GroupMembership
from userflow.errors import UnknownGroup
from userflow.groups import actions
from userflow.sessions.assurance import Action

LIST = "admin:userflow_group_changelist"


def _found(group_id: UUID) -> Group:
    group = Group.objects.prefetch_related("roles").filter(pk=group_id).first()
    if group is None:
        raise UnknownGroup
    return group


@inside("groups:read")
def group(request: HttpRequest, tenant: Tenant, group_id: UUID) -> HttpResponse:
    """A group with its roles and, for those who may see people, its members."""
    shown, staff = _found(group_id), staff_at(request)
    record_for_tenant("group.viewed", target=("group", shown.pk), details={"console": True})
    sees_people = staff.may("endusers:read")
    bonds = GroupMembership.objects.filter(group=shown)
    context = {
        **admin.site.each_context(request),
        "title": shown.name,
        "group": shown,
        "roles": sorted(shown.roles.all(), key=lambda role: role.name.lower()),
        "members": memberships.page_of(request, bonds) if sees_people else None,
        "may_write": staff.may("groups:write"),
        "may_see_roles": staff.may("roles:read"),
        "tenant": tenant,
    }
    return TemplateResponse(request, "console/people/group.html", context)


@inside("groups:read", "groups:write")
def create(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Make a group."""
    made: list[Group] = []

    def act(fields: dict[str, Any]) -> str:
        made.append(actions.create_group(tenant_id=tenant.pk, by=staff_at(request).principal, **fields))
        return _("The group is made: take the first members in.")

    return confirmed(
        request,
        title=_("New group"),
        text=_("A group gives all its members its roles. You can give only what you hold yourself."),
        back=reverse(LIST),
        action=Action.GRANT_ROLES,
        act=act,
        form_class=forms.GroupForm,
        submit=_("Make the group"),
        onward=lambda: reverse("admin:group", args=[made[0].pk]),
        dangerous=False,
        tenant=tenant,
    )


@inside("groups:read", "groups:write")
def edit(request: HttpRequest, tenant: Tenant, group_id: UUID) -> HttpResponse:
    """Change a group's name, description or roles."""
    shown = _found(group_id)
    before = {
        "name": shown.name,
        "description": shown.description,
        "roles": sorted(role.name for role in shown.roles.all()),
    }

    def act(fields: dict[str, Any]) -> str:
        changes = {name: value for name, value in fields.items() if name in before and value != before[name]}
        actions.update_group(tenant_id=tenant.pk, by=staff_at(request).principal, group_id=shown.pk, changes=changes)
        return _("The group is changed.")

    return confirmed(
        request,
        title=_("Change the group"),
        text=_("Roles that are added or taken away count for all members from their next request on."),
        back=reverse("admin:group", args=[shown.pk]),
        action=Action.GRANT_ROLES,
        act=act,
        form_class=forms.GroupForm,
        form_options={"initial": before},
        submit=_("Save"),
        dangerous=False,
        tenant=tenant,
    )


@inside("groups:read", "groups:write")
def delete(request: HttpRequest, tenant: Tenant, group_id: UUID) -> HttpResponse:
    """Remove a group."""
    shown = _found(group_id)

    def act(_fields: dict[str, Any]) -> str:
        actions.delete_group(tenant_id=tenant.pk, by=staff_at(request).principal, group_id=shown.pk)
        return _("The group is deleted.")

    return confirmed(
        request,
        title=_("Delete the group"),
        text=_("All members lose its roles at their next request. The members themselves stay."),
        back=reverse("admin:group", args=[shown.pk]),
        action=None,
        act=act,
        form_class=TypedName,
        form_options={"wanted": shown.name},
        onward=lambda: reverse(LIST),
        tenant=tenant,
    )


@inside("groups:read", "groups:write", "endusers:read")
def add_members(request: HttpRequest, tenant: Tenant, group_id: UUID) -> HttpResponse:
    """Find people and take them into the group."""
    shown = _found(group_id)
    return memberships.add_members(
        request,
        tenant,
        title=_("Add members to %(name)s") % {"name": shown.name},
        text=_("Members have the roles of the group from their next request on."),
        back=reverse("admin:group", args=[shown.pk]),
        bonds=GroupMembership.objects.filter(group=shown),
        add=lambda ids: actions.add_members(
            tenant_id=tenant.pk, by=staff_at(request).principal, group_id=shown.pk, user_ids=ids
        ),
    )


@of_person("groups:read", "groups:write")
def take_out(request: HttpRequest, tenant: Tenant, user: EndUser, *, group_id: UUID) -> HttpResponse:
    """Take a person out of a group."""
    shown = _found(group_id)

    def act(_fields: dict[str, Any]) -> str:
        actions.remove_members(
            tenant_id=tenant.pk, by=staff_at(request).principal, group_id=shown.pk, user_ids=[user.pk]
        )
        return _("%(email)s is not in the group any more.") % {"email": user.email}

    return confirmed(
        request,
        title=_("Take out of %(name)s") % {"name": shown.name},
        text=_("%(email)s loses the roles of the group at the next request.") % {"email": user.email},
        back=reverse("admin:group", args=[shown.pk]),
        action=None,
        act=act,
        dangerous=False,
        tenant=tenant,
    )
