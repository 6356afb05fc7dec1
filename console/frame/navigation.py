"""The sidebar: groups of links that the user may open."""

from typing import Final

from django.http import HttpRequest
from django.urls import reverse, reverse_lazy
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, Staff, staff_or_none
from console.frame.records import Text
from console.frame.scope import chosen_tenant

# Title, icon, name of the page, permissions.
Links = tuple[tuple[Text, str, str, str], ...]
OVERVIEW: Final[Links] = ((_("Dashboard"), "dashboard", "index", ""),)
# Tenant admins see their own tenant without a permission.
TENANTS: Final[Links] = ((_("Tenants"), "domain", "tenants_tenant_changelist", "tenants:read"),)
JOBS: Final[Links] = ((_("Jobs"), "deployed_code_history", "console_job_changelist", "tenants:read"),)
CHOOSER: Final[Links] = ((_("Choose a tenant"), "domain", "choose_tenant", "tenants:read"),)
CHANGE: Final[Links] = ((_("Change tenant"), "swap_horiz", "choose_tenant", "tenants:read"),)
OPEN_TENANT: Final[Links] = (
    (_("End users"), "group", "userflow_enduser_changelist", "endusers:read"),
    (_("Groups"), "groups", "userflow_group_changelist", "groups:read"),
    (_("Roles"), "badge", "userflow_role_changelist", "roles:read"),
    (_("Invitations"), "outgoing_mail", "invitations", "invitations:read"),
    (_("Sessions"), "devices", "userflow_endusersession_changelist", "sessions:read endusers:read"),
    (_("Branding"), "palette", "branding", "admins:write"),
)
AUDIT_LOG: Final[Links] = ((_("Audit log"), "history", "tenant_trail", "audit:read"),)
# Tenant admins see the keys without a permission, like the tenant itself.
TENANT_KEYS: Final[Links] = ((_("Signing keys"), "signature", "tenant_signing_keys", "tenants:read"),)
# Of the chosen tenant, in the global database.
APPLICATIONS: Final[Links] = (
    (_("Services"), "hub", "registry_service_changelist", "services:read"),
    (_("Clients"), "apps", "userflow_client_changelist", "clients:read"),
    (_("Webhooks"), "webhook", "webhooks", "webhooks:read"),
    (_("Domains"), "language", "domains", "domains:read"),
    (_("Directories"), "folder_shared", "directories", "directory:read"),
)
PLATFORM: Final[Links] = (
    (_("Admin users"), "badge", "userflow_adminuser_changelist", "admins:read"),
    (_("Admin invitations"), "mail", "userflow_admininvitation_changelist", "invitations:read"),
    (_("Admin roles"), "key", "userflow_adminrole_changelist", "admins:read"),
)
SERVERS_AND_KEYS: Final[Links] = (
    (_("Database servers"), "storage", "servers", "tenants:read"),
    (_("Maintenance"), "construction", "modes", "tenants:read"),
    (_("Log levels"), "tune", "log_levels", "tenants:read"),
    (_("Signing keys"), "signature", "signing_keys", "tenants:read"),
    (_("Encryption keys"), "lock", "encryption_keys", "tenants:read"),
)
# Every page that is in the sidebar for someone, apart from the chooser.
ENTRIES: Final[Links] = (
    OVERVIEW + TENANTS + JOBS + AUDIT_LOG + OPEN_TENANT + TENANT_KEYS + APPLICATIONS + PLATFORM + SERVERS_AND_KEYS
)


def permitted(staff: Staff, links: Links) -> Links:
    """Return the links for which the user has the permissions."""
    return tuple(link for link in links if all(map(staff.may, link[3].split())))


def sidebar(request: HttpRequest) -> list[Context]:
    """Return the sidebar (unfold's SIDEBAR.navigation)."""
    staff = staff_or_none(request)
    # The sign-in pages build the sidebar's context too, before anyone is signed in.
    if staff is None:
        return []
    is_operator = staff.is_operator
    tenants = permitted(staff, TENANTS + JOBS) if is_operator else TENANTS
    keys = permitted(staff, TENANT_KEYS) if is_operator else TENANT_KEYS
    chosen = chosen_tenant(request)
    chooser = permitted(staff, CHANGE if chosen else CHOOSER) if is_operator else ()
    of_tenant = permitted(staff, OPEN_TENANT) + keys if chosen else ()
    platform = PLATFORM + (SERVERS_AND_KEYS if is_operator else ())
    return [
        {"title": _("Overview"), "items": [*_items(OVERVIEW + tenants), *_audit_log(request, staff)]},
        # The name: a page of the platform, or of another tenant, shows these links too.
        {
            "title": chosen.name if chosen else _("Tenant"),
            # The paths of all pages inside a tenant begin with the chooser's, so it would be marked on them too.
            "items": [*_marked(chooser, request.path == reverse("admin:choose_tenant")), *_items(of_tenant)],
            "separator": True,
        },
        _group(_("Applications"), permitted(staff, APPLICATIONS)),
        _group(_("Platform"), permitted(staff, platform)),
    ]


def _audit_log(request: HttpRequest, staff: Staff) -> list[Context]:
    """Return the one link to both audit logs: it opens that of the open tenant, if there is one."""
    platform, tenant = reverse("admin:audit_trail"), reverse("admin:tenant_trail")
    changes = {
        "link": tenant if chosen_tenant(request) else platform,
        "active": request.path.startswith((platform, tenant)),
    }
    return [{**item, **changes} for item in _items(permitted(staff, AUDIT_LOG))]


def _marked(links: Links, active: bool) -> list[Context]:
    return [{**item, "active": active} for item in _items(links)]


def _group(title: Text, links: Links) -> Context:
    return {"title": title, "items": _items(links)}


def _items(links: Links) -> list[Context]:
    return [{"title": name, "icon": icon, "link": reverse_lazy(f"admin:{page}")} for name, icon, page, _needed in links]


def own_links(request: HttpRequest) -> list[Context]:
    """Return the links of the account menu (unfold's ACCOUNT.navigation)."""
    return [{"title": _("My sign-in"), "link": reverse_lazy("admin:my_sign_in")}]
