"""The sidebar's links to the pages of the chosen tenant."""

from collections.abc import Iterator
from typing import Final

from django.http import HttpRequest
from django.urls import reverse, reverse_lazy
from django.utils.translation import gettext, gettext_lazy

from console.frame.access import Context, staff_at
from console.frame.records import Text
from console.frame.scope import chosen_tenant

# Title, icon, name of the page, permissions.
PAGES: Final[tuple[tuple[Text, str, str, str], ...]] = (
    (gettext_lazy("End users"), "group", "admin:userflow_enduser_changelist", "endusers:read"),
    (gettext_lazy("Groups"), "groups", "admin:userflow_group_changelist", "groups:read"),
    (gettext_lazy("Roles"), "badge", "admin:userflow_role_changelist", "roles:read"),
    (gettext_lazy("Invitations"), "outgoing_mail", "admin:invitations", "invitations:read"),
    (gettext_lazy("Sessions"), "devices", "admin:userflow_endusersession_changelist", "sessions:read endusers:read"),
    (gettext_lazy("Audit log"), "history", "admin:tenant_trail", "audit:read"),
)


def may_open(request: HttpRequest) -> Iterator[str]:
    """Yield the paths of the lists that the user may open."""
    staff = staff_at(request)
    return (reverse(page) for _, _, page, needed in PAGES if all(map(staff.may, needed.split())))


def chosen_tenant_links(request: HttpRequest) -> Context:
    """Return the pages of the chosen tenant, or the link to choose one."""
    staff = staff_at(request)
    if chosen_tenant(request) is not None:
        held = [page for page in PAGES if all(map(staff.may, page[3].split()))]
    elif staff.is_operator and staff.may("tenants:read"):
        held = [(gettext("Choose a tenant"), "domain", "admin:choose_tenant", "")]
    else:
        held = []
    items = [{"title": title, "icon": icon, "link": reverse_lazy(page)} for title, icon, page, _ in held]
    return {"title": gettext("Open tenant"), "separator": True, "items": items}
