"""What each page of the console requires: the table of the test of all URLs.

A page is named as in `admin:<name>`. A new page must be entered here, or the test fails.
"""

from dataclasses import dataclass

from userflow.clients.kinds import KINDS


@dataclass(frozen=True)
class Page:
    """`needs` are the permissions that open it (none: every signed-in user). `of` names what each of its ids is.

    `within` says whether ids of another tenant mean nothing on it, also to an operator who has chosen a tenant. `own`:
    its ids are the person's own things, so there are none in the table's worlds. `works`: its form begins work that
    outlives the request or calls somewhere; the room's own tests send it. `of_operators` is a permission that operators
    need and a tenant's admins, who see their own tenant only, do not; `of_admins` is one that only these need.
    """

    needs: str = ""
    of: tuple[str, ...] = ()
    operators: bool = False
    public: bool = False
    within: bool = False
    own: bool = False
    works: bool = False
    of_operators: str = ""
    of_admins: str = ""

    def wants(self, *, operator: bool) -> set[str]:
        """Return the permissions that a user of this kind needs."""
        return {*self.needs.split(), *(self.of_operators if operator else self.of_admins).split()}


def _service(needs: str, *of: str) -> Page:
    return Page(needs, ("service", *of), within=True)


def _client(needs: str) -> Page:
    return Page(needs, ("client",), within=True)


def _person(needs: str = "", *of: str) -> Page:
    return Page(f"endusers:read {needs}".strip(), ("person", *of), within=True)


def _inside(needs: str, *of: str, works: bool = False) -> Page:
    return Page(needs, of, within=True, works=works)


def _step(*, works: bool = False) -> Page:
    return Page("tenants:write", ("tenant",), operators=True, works=works)


_SECRET = "services:credentials"
_GROUPS, _ROLES = "groups:read groups:write", "roles:read roles:write"
_INVITING = "invitations:read invitations:write"
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
    "add_passkey": Page(public=True),
    "creation_options": Page(public=True),
    "set_up_app": Page(public=True),
    "new_backup_codes": Page(own=True),
    "remove_my_factor": Page(of=("factor",), own=True),
    "end_my_other_sessions": Page(own=True),
    "end_my_session": Page(of=("session",), own=True),
    "password_change": Page(),
    "password_change_done": Page(),
    # Tenants and jobs.
    "tenants_tenant_changelist": Page(of_operators="tenants:read"),
    "tenants_tenant_change": Page(of=("tenant",), of_operators="tenants:read"),
    "tenants_tenant_add": Page("never"),
    "tenants_tenant_provision": Page("tenants:write", operators=True),
    "tenants_tenant_settings": Page(of=("tenant",), of_operators="tenants:write", of_admins="admins:write"),
    "tenants_tenant_slug": _step(),
    "tenants_tenant_suspend": _step(works=True),
    "tenants_tenant_resume": _step(works=True),
    "tenants_tenant_finish": _step(works=True),
    "tenants_tenant_migrate": _step(works=True),
    "tenants_tenant_backup": _step(works=True),
    "tenants_tenant_delete": _step(),
    "tenants_tenant_move": _step(),
    "tenants_tenant_restore": _step(),
    "console_job_changelist": Page("tenants:read", operators=True),
    "console_job_add": Page("never"),
    "console_job_change": Page("tenants:read", ("job",), operators=True),
    "console_job_delete": Page("never", ("job",)),
    "console_job_state": Page("tenants:read", ("job",), operators=True),
    "console_job_again": Page("tenants:write", ("job",), operators=True, works=True),
    # Inside a tenant.
    "choose_tenant": Page("tenants:read", operators=True),
    "userflow_enduser_changelist": _inside("endusers:read"),
    "userflow_group_changelist": _inside("groups:read"),
    "userflow_role_changelist": _inside("roles:read"),
    "userflow_endusersession_changelist": _inside("sessions:read endusers:read"),
    "import_people": _inside("endusers:read endusers:write"),
    "export_people": _inside("endusers:read"),
    "register_person": _inside("endusers:read endusers:write"),
    "deactivate_people": _inside("endusers:read endusers:write"),
    "end_sessions_of_people": _inside("endusers:read sessions:write"),
    "add_people_to_group": _inside(f"endusers:read {_GROUPS}"),
    "person": _person(),
    "edit_person": _person("endusers:write"),
    "person_activity": _person("endusers:write"),
    "erase_person": _person("endusers:delete"),
    "reset_person_factors": _person("endusers:factors"),
    "issue_person_pass": _person("endusers:factors"),
    "reset_person_password": _person("endusers:write"),
    "resend_person_verification": _person("endusers:write"),
    "verify_person": _person("endusers:write"),
    "unlock_person": _person("endusers:write"),
    "download_person": _person("groups:read roles:read sessions:read audit:read"),
    "end_person_sessions": _person("sessions:write"),
    "end_person_session": _person("sessions:write", "person_session"),
    "disconnect_person": _person("sessions:write", "application"),
    "person_groups": _person(_GROUPS),
    "person_roles": _person(_ROLES),
    "leave_group": _person(_GROUPS, "group"),
    "take_role": _person(_ROLES, "tenant_role"),
    "new_group": _inside(_GROUPS),
    "group": _inside("groups:read", "group"),
    "edit_group": _inside(_GROUPS, "group"),
    "delete_group": _inside(_GROUPS, "group"),
    "add_to_group": _inside(f"{_GROUPS} endusers:read", "group"),
    "new_role": _inside(_ROLES),
    "role": _inside("roles:read", "tenant_role"),
    "edit_role": _inside(_ROLES, "tenant_role"),
    "delete_role": _inside(_ROLES, "tenant_role"),
    "give_role": _inside(f"{_ROLES} endusers:read", "tenant_role"),
    "invitations": _inside("invitations:read"),
    "invite_person": _inside(_INVITING),
    "resend_invitation": _inside(_INVITING, "person_invitation"),
    "cancel_invitation": _inside(_INVITING, "person_invitation"),
    "tenant_trail": _inside("audit:read"),
    "tenant_audit_export": _inside("audit:read"),
    "branding": Page("admins:write", within=True, of_operators="tenants:write"),
    "branding_preview": Page("admins:write", within=True, of_operators="tenants:write", works=True),
    "tenant_signing_keys": Page(within=True, of_operators="tenants:read"),
    "tenant_signing_keys_rotate": Page("tenants:write", operators=True, within=True),
    "tenant_signing_key_withdraw": Page("tenants:write", ("tenant_kid",), operators=True, within=True),
    # Webhooks and directories of the chosen tenant.
    "domains": _inside("domains:read"),
    "domain_add": _inside("domains:write"),
    "domain": _inside("domains:read", "domain"),
    "domain_verify": _inside("domains:write", "domain", works=True),
    "domain_sign_in": _inside("domains:write", "domain"),
    "domain_stop_sign_in": _inside("domains:write", "domain"),
    "domain_delete": _inside("domains:write", "domain"),
    "webhooks": _inside("webhooks:read"),
    "webhook_add": _inside("webhooks:write"),
    "webhook": _inside("webhooks:read", "endpoint"),
    "webhook_edit": _inside("webhooks:write", "endpoint"),
    "webhook_rotate": _inside("webhooks:write", "endpoint"),
    "webhook_test": _inside("webhooks:write", "endpoint"),
    "webhook_replay": _inside("webhooks:write", "endpoint"),
    "webhook_message": _inside("webhooks:read", "endpoint", "message"),
    "webhook_message_replay": _inside("webhooks:write", "endpoint", "message"),
    "webhook_delete": _inside("webhooks:write", "endpoint"),
    "directories": _inside("directory:read"),
    "directory_add_active_directory": _inside("directory:write"),
    "directory_add_entra_id": _inside("directory:write"),
    "directory": _inside("directory:read", "directory"),
    "directory_run": _inside("directory:read", "directory", "run"),
    "directory_dry_run": Page("directory:sync", ("directory",), within=True, works=True),
    "directory_sync": Page("directory:sync", ("directory",), within=True, works=True),
    "directory_try": Page("directory:sync", ("directory",), within=True, works=True),
    "directory_change": _inside("directory:write", "directory"),
    "directory_connection": _inside("directory:write", "directory"),
    "directory_delete": _inside("directory:write", "directory"),
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
    **{f"client_add_{kind}": Page("clients:write") for kind in KINDS},
    "userflow_client_change": _client("clients:read"),
    "userflow_client_delete": _client("clients:write"),
    "client_edit": _client("clients:write"),
    "client_activate": _client("clients:write"),
    "client_deactivate": _client("clients:write"),
    "client_logouts": _client("clients:write"),
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
    "admin_issue_pass": Page("admins:write", ("admin",)),
    "admin_end_sessions": Page("admins:write", ("admin",)),
    "userflow_admininvitation_changelist": Page("invitations:read"),
    "userflow_admininvitation_add": Page("invitations:write admins:write"),
    "userflow_admininvitation_change": Page("invitations:read", ("invitation",)),
    "userflow_admininvitation_delete": Page("never", ("invitation",)),
    "invitation_resend": Page("invitations:write", ("invitation",)),
    "invitation_cancel": Page("invitations:write", ("invitation",)),
    "userflow_adminrole_changelist": Page("admins:read"),
    "userflow_adminrole_add": Page("admins:read admins:write", operators=True),
    "userflow_adminrole_change": Page("admins:read", ("role",)),
    "userflow_adminrole_delete": Page("never", ("role",)),
    "admin_role_edit": Page("admins:read admins:write", ("role",), operators=True),
    "admin_role_remove": Page("admins:read admins:write", ("role",), operators=True),
    # The platform.
    "signing_keys": Page("tenants:read", operators=True),
    "signing_keys_rotate": Page("tenants:write", operators=True),
    "signing_key_withdraw": Page("tenants:write", ("kid",), operators=True),
    "encryption_keys": Page("tenants:read", operators=True),
    "servers": Page("tenants:read", operators=True),
    "modes": Page("tenants:read", operators=True),
    "mode_start": Page("tenants:write", operators=True),
    "mode_end": Page("tenants:write", operators=True),
    "log_levels": Page("tenants:read", operators=True),
    "log_level_set": Page("tenants:write", operators=True),
    "log_level_reset": Page("tenants:write", operators=True),
    "server": _SERVERS,
    "server_change": Page("tenants:write", ("server",), operators=True),
    "audit_trail": Page("audit:read"),
    "audit_export": Page("audit:read"),
}
