"""Paths of the console's pages beside the lists. Those inside a tenant do not name it: it is the chosen one."""

from typing import Final

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from console.audit_logs import pages as audit_logs
from console.frame.access import Page
from console.frame.modes import in_every_mode
from console.frame.sent_forms import processed_each_time
from console.jobs import admin as jobs
from console.people import bulk, chooser, end_user, groups_and_roles, invitations, support, transfer
from console.platform import (
    admin_roles,
    admins,
    clients,
    directories,
    domains,
    keys,
    log_levels,
    modes,
    servers,
    webhooks,
)
from console.platform import invitations as admin_invitations
from console.registry import pages as services
from console.signin import own_account, own_factors, views
from console.tenants import branding, changes
from userflow.clients.kinds import KINDS

_USER: Final = "inside/people/<uuid:user_id>/"
_GROUP: Final = "inside/groups/<uuid:group_id>/"
_ROLE: Final = "inside/roles/<uuid:role_id>/"
_INVITATION: Final = "inside/invitations/<uuid:invitation_id>/"
_ADMIN: Final = "userflow/adminuser/<uuid:user_id>"
_ADMIN_ROLE: Final = "userflow/adminrole/<int:role_id>"
_ADMIN_INVITATION: Final = "userflow/admininvitation/<uuid:invitation_id>"
_CLIENT: Final = "userflow/client/<uuid:client_id>"
_SERVICE: Final = "registry/service/<uuid:service_id>"
_CREDENTIAL: Final = f"{_SERVICE}/credentials/<uuid:credential_id>"
_TENANT: Final = "tenants/tenant/<uuid:tenant_id>"
_JOB: Final = "console/job/<uuid:job_id>"
_DOMAIN: Final = "platform/domains/<uuid:domain_id>"
_WEBHOOK: Final = "platform/webhooks/<uuid:endpoint_id>"
_DIRECTORY: Final = "platform/directories/<uuid:config_id>"
Paths = tuple[tuple[str, str, Page], ...]
# Path, name, page: the last steps of a sign-in, and what users may do who must enroll a first factor before all else.
BEFORE_SIGN_IN: Final[Paths] = (
    ("second-step/", "second_step", views.second_step),
    ("forgotten/", "forgotten", views.forgotten),
    ("passkey-options/", "passkey_options", views.passkey_options),
    ("my-sign-in/", "my_sign_in", own_account.overview),
    ("my-sign-in/passkeys/add/", "add_passkey", own_factors.add_passkey),
    ("my-sign-in/passkeys/options/", "creation_options", own_factors.creation_options),
    ("my-sign-in/app/", "set_up_app", own_factors.set_up_app),
    ("my-sign-in/backup-codes/", "new_backup_codes", own_factors.new_backup_codes),
)
SIGNED_IN: Final[Paths] = (
    ("reauthenticate/", "reauthenticate", in_every_mode(views.reauthenticate)),
    ("my-sign-in/factors/<str:factor_id>/remove/", "remove_my_factor", own_factors.RemoveFactor.as_view()),
    ("my-sign-in/sessions/end-others/", "end_my_other_sessions", own_account.end_other_sessions),
    ("my-sign-in/sessions/<str:session_id>/end/", "end_my_session", own_account.end_session),
    ("inside/", "choose_tenant", chooser.chooser),
    ("inside/people/import/", "import_people", transfer.ImportEndUsers.as_view()),
    ("inside/people/export/", "export_people", transfer.ExportEndUsers.as_view()),
    ("inside/people/register/", "register_person", end_user.Register.as_view()),
    ("inside/people/deactivate/", "deactivate_people", bulk.DeactivateSelected.as_view()),
    ("inside/people/end-sessions/", "end_sessions_of_people", bulk.EndSessionsOfSelected.as_view()),
    ("inside/people/add-to-group/", "add_people_to_group", bulk.AddSelectedToGroup.as_view()),
    (_USER, "person", end_user.show),
    (f"{_USER}edit/", "edit_person", end_user.Edit.as_view()),
    (f"{_USER}activity/", "person_activity", end_user.SetActive.as_view()),
    (f"{_USER}erase/", "erase_person", end_user.Erase.as_view()),
    (f"{_USER}factors/reset/", "reset_person_factors", end_user.ResetFactors.as_view()),
    (f"{_USER}enrollment-pass/", "issue_person_pass", end_user.IssuePass.as_view()),
    (f"{_USER}password/reset/", "reset_person_password", support.SendReset.as_view()),
    (f"{_USER}email/resend/", "resend_person_verification", support.ResendVerification.as_view()),
    (f"{_USER}email/verify/", "verify_person", support.MarkVerified.as_view()),
    (f"{_USER}unlock/", "unlock_person", support.Unlock.as_view()),
    (f"{_USER}data/", "download_person", support.download),
    (f"{_USER}sessions/end/", "end_person_sessions", end_user.EndSessions.as_view()),
    (f"{_USER}sessions/<uuid:session_id>/end/", "end_person_session", end_user.EndSession.as_view()),
    (f"{_USER}applications/<uuid:client_id>/disconnect/", "disconnect_person", end_user.Disconnect.as_view()),
    (f"{_USER}groups/", "person_groups", groups_and_roles.EndUserGroups.as_view()),
    (f"{_USER}roles/", "person_roles", groups_and_roles.EndUserRoles.as_view()),
    (f"{_USER}groups/<uuid:group_id>/leave/", "leave_group", groups_and_roles.RemoveMember.as_view()),
    (f"{_USER}roles/<uuid:role_id>/take/", "take_role", groups_and_roles.RemoveHolder.as_view()),
    ("inside/groups/new/", "new_group", groups_and_roles.CreateGroup.as_view()),
    (_GROUP, "group", groups_and_roles.show_group),
    (f"{_GROUP}edit/", "edit_group", groups_and_roles.EditGroup.as_view()),
    (f"{_GROUP}delete/", "delete_group", groups_and_roles.DeleteGroup.as_view()),
    (f"{_GROUP}members/", "add_to_group", groups_and_roles.AddMembers.as_view()),
    ("inside/roles/new/", "new_role", groups_and_roles.CreateRole.as_view()),
    (_ROLE, "role", groups_and_roles.show_role),
    (f"{_ROLE}edit/", "edit_role", groups_and_roles.EditRole.as_view()),
    (f"{_ROLE}delete/", "delete_role", groups_and_roles.DeleteRole.as_view()),
    (f"{_ROLE}members/", "give_role", groups_and_roles.AddHolders.as_view()),
    ("inside/invitations/", "invitations", invitations.listed),
    ("inside/invitations/new/", "invite_person", invitations.Invite.as_view()),
    (f"{_INVITATION}resend/", "resend_invitation", invitations.Resend.as_view()),
    (f"{_INVITATION}cancel/", "cancel_invitation", invitations.Cancel.as_view()),
    ("inside/trail/", "tenant_trail", audit_logs.of_tenant),
    ("inside/trail/export/", "tenant_audit_export", audit_logs.TenantExport.as_view()),
    ("inside/branding/", "branding", branding.BrandingPage.as_view()),
    ("inside/branding/preview/", "branding_preview", processed_each_time(branding.BrandingPreview.as_view())),
    ("inside/signing-keys/", "tenant_signing_keys", keys.tenant_signing_keys),
    ("inside/signing-keys/rotate/", "tenant_signing_keys_rotate", keys.RotateOfTenant.as_view()),
    ("inside/signing-keys/<str:kid>/withdraw/", "tenant_signing_key_withdraw", keys.WithdrawOfTenant.as_view()),
    ("platform/signing-keys/", "signing_keys", keys.signing_keys),
    ("platform/signing-keys/rotate/", "signing_keys_rotate", keys.Rotate.as_view()),
    ("platform/signing-keys/<str:kid>/withdraw/", "signing_key_withdraw", keys.Withdraw.as_view()),
    ("platform/encryption-keys/", "encryption_keys", keys.encryption_keys),
    ("platform/servers/", "servers", servers.listed),
    ("platform/servers/<int:server_id>/", "server", servers.show),
    ("platform/servers/<int:server_id>/change/", "server_change", servers.ChangeServer.as_view()),
    ("platform/modes/", "modes", modes.listed),
    ("platform/modes/start/", "mode_start", in_every_mode(modes.StartMode.as_view())),
    ("platform/modes/end/", "mode_end", in_every_mode(modes.EndMode.as_view())),
    ("platform/log-levels/", "log_levels", log_levels.listed),
    ("platform/log-levels/set/", "log_level_set", log_levels.SetLevel.as_view()),
    ("platform/log-levels/reset/", "log_level_reset", log_levels.ResetLevel.as_view()),
    ("platform/audit/", "audit_trail", audit_logs.listed),
    ("platform/audit/export/", "audit_export", audit_logs.Export.as_view()),
    ("platform/domains/", "domains", domains.listed),
    ("platform/domains/add/", "domain_add", domains.AddDomain.as_view()),
    (f"{_DOMAIN}/", "domain", domains.show),
    (f"{_DOMAIN}/verify/", "domain_verify", domains.VerifyDomain.as_view()),
    (f"{_DOMAIN}/sign-in/", "domain_sign_in", domains.UseForSignIn.as_view()),
    (f"{_DOMAIN}/stop-sign-in/", "domain_stop_sign_in", domains.StopSignIn.as_view()),
    (f"{_DOMAIN}/delete/", "domain_delete", domains.DeleteDomain.as_view()),
    ("platform/webhooks/", "webhooks", webhooks.listed),
    ("platform/webhooks/add/", "webhook_add", webhooks.CreateEndpoint.as_view()),
    (f"{_WEBHOOK}/", "webhook", webhooks.show),
    (f"{_WEBHOOK}/edit/", "webhook_edit", webhooks.EditEndpoint.as_view()),
    (f"{_WEBHOOK}/rotate/", "webhook_rotate", webhooks.RotateSecret.as_view()),
    (f"{_WEBHOOK}/test/", "webhook_test", webhooks.SendTest.as_view()),
    (f"{_WEBHOOK}/replay/", "webhook_replay", webhooks.Replay.as_view()),
    (f"{_WEBHOOK}/messages/<int:position>/", "webhook_message", webhooks.show_message),
    (f"{_WEBHOOK}/messages/<int:position>/replay/", "webhook_message_replay", webhooks.ReplayMessage.as_view()),
    (f"{_WEBHOOK}/delete/", "webhook_delete", webhooks.DeleteEndpoint.as_view()),
    ("platform/directories/", "directories", directories.listed),
    (
        "platform/directories/add/active-directory/",
        "directory_add_active_directory",
        directories.CreateActiveDirectory.as_view(),
    ),
    ("platform/directories/add/entra-id/", "directory_add_entra_id", directories.CreateEntraId.as_view()),
    (f"{_DIRECTORY}/", "directory", directories.show),
    (f"{_DIRECTORY}/runs/<uuid:run_id>/", "directory_run", directories.show_run),
    (f"{_DIRECTORY}/dry-run/", "directory_dry_run", directories.DryRun.as_view()),
    (f"{_DIRECTORY}/sync/", "directory_sync", directories.Synchronize.as_view()),
    (f"{_DIRECTORY}/try/", "directory_try", directories.TestDirectory.as_view()),
    (f"{_DIRECTORY}/change/", "directory_change", directories.EditDirectory.as_view()),
    (f"{_DIRECTORY}/connection/", "directory_connection", directories.EditConnection.as_view()),
    (f"{_DIRECTORY}/delete/", "directory_delete", directories.DeleteDirectory.as_view()),
    (f"{_ADMIN}/edit/", "admin_edit", admins.edit),
    (f"{_ADMIN}/activate/", "admin_activate", admins.Activate.as_view()),
    (f"{_ADMIN}/deactivate/", "admin_deactivate", admins.Deactivate.as_view()),
    (f"{_ADMIN}/reset-factors/", "admin_reset_factors", admins.ResetFactors.as_view()),
    (f"{_ADMIN}/enrollment-pass/", "admin_issue_pass", admins.IssuePass.as_view()),
    (f"{_ADMIN}/end-sessions/", "admin_end_sessions", admins.EndAllSessions.as_view()),
    (f"{_ADMIN_ROLE}/edit/", "admin_role_edit", admin_roles.EditRole.as_view()),
    (f"{_ADMIN_ROLE}/remove/", "admin_role_remove", admin_roles.DeleteRole.as_view()),
    (f"{_ADMIN_INVITATION}/resend/", "invitation_resend", admin_invitations.Resend.as_view()),
    (f"{_ADMIN_INVITATION}/cancel/", "invitation_cancel", admin_invitations.Cancel.as_view()),
    *(
        (f"userflow/client/add/{name}/", f"client_add_{name}", clients.CreateClient.as_view(kind=kind))
        for name, kind in KINDS.items()
    ),
    (f"{_CLIENT}/edit/", "client_edit", clients.EditClient.as_view()),
    (f"{_CLIENT}/activate/", "client_activate", clients.Activate.as_view()),
    (f"{_CLIENT}/deactivate/", "client_deactivate", clients.Deactivate.as_view()),
    (f"{_CLIENT}/logouts/", "client_logouts", clients.RetryLogouts.as_view()),
    (f"{_CLIENT}/rotate/", "client_rotate", clients.RotateSecret.as_view()),
    (f"{_SERVICE}/edit/", "service_edit", services.EditService.as_view()),
    (f"{_SERVICE}/credentials/add/", "credential_add", services.AddCredential.as_view()),
    (f"{_CREDENTIAL}/rotate/", "credential_rotate", services.Rotate.as_view()),
    (f"{_CREDENTIAL}/revoke/", "credential_revoke", services.Revoke.as_view()),
    (f"{_CREDENTIAL}/activate/", "credential_activate", services.Activate.as_view()),
    (f"{_CREDENTIAL}/expiry/", "credential_expiry", services.Expiry.as_view()),
    (f"{_CREDENTIAL}/delete/", "credential_delete", services.DeleteCredential.as_view()),
    (f"{_CREDENTIAL}/reveal/", "credential_reveal", services.Reveal.as_view()),
    ("tenants/tenant/provision/", "tenants_tenant_provision", changes.Provision.as_view()),
    (f"{_TENANT}/settings/", "tenants_tenant_settings", changes.Settings.as_view()),
    (f"{_TENANT}/slug/", "tenants_tenant_slug", changes.ChangeSlug.as_view()),
    (f"{_TENANT}/suspend/", "tenants_tenant_suspend", changes.Suspend.as_view()),
    (f"{_TENANT}/resume/", "tenants_tenant_resume", changes.Resume.as_view()),
    (f"{_TENANT}/finish/", "tenants_tenant_finish", changes.Finish.as_view()),
    (f"{_TENANT}/migrate/", "tenants_tenant_migrate", changes.Migrate.as_view()),
    (f"{_TENANT}/backup/", "tenants_tenant_backup", changes.BackUp.as_view()),
    (f"{_TENANT}/move/", "tenants_tenant_move", changes.Move.as_view()),
    (f"{_TENANT}/restore/", "tenants_tenant_restore", changes.Restore.as_view()),
    (f"{_JOB}/state/", "console_job_state", jobs.show_state),
    (f"{_JOB}/again/", "console_job_again", jobs.RunAgain.as_view()),
)


def pages(site: AdminSite) -> list[URLPattern]:
    """Return the paths. The pages of an incomplete sign-in are not wrapped by `site.admin_view`."""
    return [
        *(path(route, page, name=name) for route, name, page in BEFORE_SIGN_IN),
        *(path(route, site.admin_view(page), name=name) for route, name, page in SIGNED_IN),
    ]
