"""The sidebar's groups of the registry and the platform."""

from collections.abc import Callable

from django.http import HttpRequest
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, staff_or_none
from console.frame.records import Text


def _holds(permission: str, *, operators_only: bool = False) -> Callable[[HttpRequest], bool]:
    def shown(request: HttpRequest) -> bool:
        staff = staff_or_none(request)
        return staff is not None and staff.may(permission) and (staff.is_operator or not operators_only)

    return shown


def _item(title: Text, icon: str, page: str, permission: str, *, operators_only: bool = False) -> Context:
    allowed = _holds(permission, operators_only=operators_only)
    return {"title": title, "icon": icon, "link": reverse_lazy(f"admin:{page}"), "permission": allowed}


def registry() -> Context:
    """Return the links to services, clients, webhooks and directories of the chosen tenant."""
    return {
        "title": _("Applications"),
        "items": [
            _item(_("Services"), "hub", "registry_service_changelist", "services:read"),
            _item(_("Clients"), "apps", "userflow_client_changelist", "clients:read"),
            _item(_("Webhooks"), "webhook", "webhooks", "webhooks:read"),
            _item(_("Directories"), "folder_shared", "directories", "directory:read"),
        ],
    }


def platform() -> Context:
    """Return the links to admin users, the audit log, servers and keys."""
    return {
        "title": _("Platform"),
        "items": [
            _item(_("Admin users"), "badge", "userflow_adminuser_changelist", "admins:read"),
            _item(_("Admin invitations"), "mail", "userflow_admininvitation_changelist", "invitations:read"),
            _item(_("Admin roles"), "key", "userflow_adminrole_changelist", "admins:read"),
            _item(_("Audit log"), "history", "audit_trail", "audit:read"),
            _item(_("Database servers"), "storage", "servers", "tenants:read", operators_only=True),
            _item(_("Signing keys"), "signature", "signing_keys", "tenants:read", operators_only=True),
            _item(_("Encryption keys"), "lock", "encryption_keys", "tenants:read", operators_only=True),
        ],
    }
