"""What each page of the console wants: the table that the test over all its URLs goes by.

A page is named as in `admin:<name>`. A new page must be entered here, or the test fails.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """`needs` is the permission that opens it (none: everybody who is signed in). `of` names what each of its ids is.

    `within` says whether ids of another tenant mean nothing on it, also to an operator who has chosen a tenant.
    """

    needs: str = ""
    of: tuple[str, ...] = ()
    operators: bool = False
    public: bool = False
    within: bool = False


def _service(needs: str, *of: str) -> Page:
    return Page(needs, ("service", *of), within=True)


def _client(needs: str) -> Page:
    return Page(needs, ("client",), within=True)


_SECRET = "services:credentials"
_SERVERS = Page("tenants:read", ("server",), operators=True)
PAGES: dict[str, Page] = {
    # The frame and the sign-in.
    "index": Page(),
    "app_list": Page(of=("app",)),
    "jsi18n": Page(),
    "search": Page(),
    "login": Page(public=True),
    "logout": Page(public=True),
    "second_step": Page(public=True),
    "forgotten": Page(public=True),
    "passkey_options": Page(public=True),
    "reauthenticate": Page(),
    "my_sign_in": Page(),
    "password_change": Page(),
    "password_change_done": Page(),
    # Services.
    "registry_service_changelist": Page("services:read"),
    "registry_service_add": Page("services:write"),
    "registry_service_change": _service("services:read"),
    "registry_service_delete": _service("services:delete"),
    "service_edit": _service("services:write"),
    "credential_add": _service(_SECRET),
    "credential_rotate": _service(_SECRET, "credential"),
    "credential_revoke": _service(_SECRET, "credential"),
    "credential_activate": _service(_SECRET, "credential"),
    "credential_expiry": _service(_SECRET, "credential"),
    "credential_delete": _service(_SECRET, "credential"),
    "credential_reveal": _service(_SECRET, "credential"),
    # Clients.
    "userflow_client_changelist": Page("clients:read"),
    "userflow_client_add": Page("clients:write"),
    "userflow_client_change": _client("clients:read"),
    "userflow_client_delete": _client("clients:write"),
    "client_edit": _client("clients:write"),
    "client_activate": _client("clients:write"),
    "client_deactivate": _client("clients:write"),
    "client_rotate": _client("clients:write"),
    # Admin users, their invitations and roles.
    "userflow_adminuser_changelist": Page("admins:read"),
    "userflow_adminuser_add": Page("admins:write"),
    "userflow_adminuser_change": Page("admins:read", ("admin",)),
    "userflow_adminuser_delete": Page("never", ("admin",)),
    "admin_edit": Page("admins:write", ("admin",)),
    "admin_activate": Page("admins:write", ("admin",)),
    "admin_deactivate": Page("admins:write", ("admin",)),
    "admin_reset_factors": Page("admins:write", ("admin",)),
    "admin_end_sessions": Page("admins:write", ("admin",)),
    "userflow_admininvitation_changelist": Page("invitations:read"),
    "userflow_admininvitation_add": Page("invitations:write"),
    "userflow_admininvitation_change": Page("invitations:read", ("invitation",)),
    "userflow_admininvitation_delete": Page("never", ("invitation",)),
    "invitation_resend": Page("invitations:write", ("invitation",)),
    "invitation_cancel": Page("invitations:write", ("invitation",)),
    "userflow_adminrole_changelist": Page("admins:read"),
    "userflow_adminrole_add": Page("never"),
    "userflow_adminrole_change": Page("admins:read", ("role",)),
    "userflow_adminrole_delete": Page("never", ("role",)),
    # The platform.
    "signing_keys": Page("tenants:read", operators=True),
    "signing_keys_rotate": Page("tenants:write", operators=True),
    "signing_key_withdraw": Page("tenants:write", ("kid",), operators=True),
    "encryption_keys": Page("tenants:read", operators=True),
    "servers": Page("tenants:read", operators=True),
    "server": _SERVERS,
    "server_change": Page("tenants:write", ("server",), operators=True),
    "audit_trail": Page("audit:read"),
    "audit_export": Page("audit:read"),
}
