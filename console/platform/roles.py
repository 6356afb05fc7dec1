"""Admin roles, read-only: their permissions and holders. The built-in roles come with the platform."""

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from console.frame.access import needs, staff_at
from console.frame.records import Cell, Table, mono, record_page
from userflow.accounts.models import AdminRole, AdminUser
from userflow.accounts.permissions_catalogue import OPERATOR_PERMISSIONS

MOST_HOLDERS = 50


def visible_roles(request: HttpRequest) -> QuerySet[AdminRole]:
    """Return all roles for an operator, else those that a tenant admin can have."""
    found = AdminRole.objects.order_by("name")
    if staff_at(request).is_operator:
        return found
    for permission in OPERATOR_PERMISSIONS:
        found = found.exclude(permissions__contains=[permission])
    return found


@needs("admins:read")
def show(request: HttpRequest, role_id: str) -> HttpResponse:
    # No number of the table has more digits, and int() rejects very many of them.
    known = role_id.isascii() and role_id.isdigit() and len(role_id) < 19
    role = visible_roles(request).filter(pk=int(role_id)).first() if known else None
    if role is None:
        raise Http404
    holders = AdminUser.objects.filter(roles=role).order_by("username")
    own = staff_at(request).user.tenant_id
    if own is not None:
        holders = holders.filter(tenant_id=own)
    permissions = Table(
        title=_("Permissions"),
        headers=(_("Permission"),),
        rows=[(mono(permission),) for permission in sorted(role.permissions)],
        empty=_("This role has no permissions."),
    )
    who = Table(
        title=_("Holders"),
        headers=(_("Username"), _("E-mail address"), _("Active")),
        rows=[
            (
                Cell(user.username, link=reverse("admin:userflow_adminuser_change", args=[user.pk])),
                user.email,
                user.active,
            )
            for user in holders[:MOST_HOLDERS]
        ],
        note=_("At most %(most)d are shown.") % {"most": MOST_HOLDERS},
        empty=_("No holders. Roles are given on the page of an admin user."),
    )
    back = reverse("admin:userflow_adminrole_changelist")
    return record_page(request, role.name, tables=[permissions, who], back=back)
