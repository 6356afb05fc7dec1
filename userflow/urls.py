"""Paths of userflow, in the order of the specification."""

from django.urls import path

from userflow.admins.views import AdminUserViewSet
from userflow.audit.views import AuditViewSet
from userflow.clients.views import ClientViewSet
from userflow.directory.views import DirectoryViewSet
from userflow.domains.views import DomainViewSet
from userflow.email.views import EmailProofViewSet, EmailVerificationViewSet
from userflow.endusers import views as endusers
from userflow.groups.views import GroupViewSet
from userflow.health.views import HealthViewSet
from userflow.invitations.views import AcceptanceViewSet, InvitationViewSet
from userflow.pages import landing_page
from userflow.passwords.views import PasswordViewSet, ResetViewSet
from userflow.profile.views import ProfileViewSet
from userflow.roles.views import RoleViewSet
from userflow.sessions.views import TokenViewSet, WellKnownViewSet
from userflow.signin import views as signin
from userflow.tenants.branding_views import BrandingViewSet
from userflow.tenants.views import TenantSettingsViewSet, TenantViewSet
from userflow.transfer.views import ExportViewSet, ImportViewSet
from userflow.validation.views import ValidationViewSet
from userflow.webhooks.views import WebhookViewSet

urlpatterns = [
    # Admin users
    path("uflow/admin/users", AdminUserViewSet.as_view({"post": "create", "get": "list"})),
    path("uflow/admin/auth/login", signin.AdminSignInViewSet.as_view({"post": "login"})),
    path("uflow/admin/users/me", AdminUserViewSet.as_view({"get": "me"})),
    path("uflow/admin/users/active", AdminUserViewSet.as_view({"post": "activity"})),
    path(
        "uflow/admin/users/<str:user_id>",
        AdminUserViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}),
    ),
    # End users
    path("uflow/user/enduser/list", endusers.EndUserListViewSet.as_view({"get": "list", "post": "search"})),
    path("uflow/admin/enduser/list", endusers.EndUserListViewSet.as_view({"post": "by_project"})),
    path("uflow/user/clients/register", endusers.RegistrationViewSet.as_view({"post": "create"})),
    path("uflow/admin/enduser/active", endusers.EndUserViewSet.as_view({"post": "set_active"})),
    path("uflow/user/enduser/delete", endusers.EndUserViewSet.as_view({"post": "deactivate"})),
    path("uflow/user/enduser/delete_all", endusers.EndUserViewSet.as_view({"post": "erase"})),
    path("uflow/user/enduser/databases", endusers.MappingViewSet.as_view({"get": "retrieve"})),
    path(
        "uflow/user/enduser/<str:tenant_id>/<str:user_id>",
        endusers.EndUserViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}),
    ),
    path(
        "uflow/user/enduser/<str:tenant_id>/<str:user_id>/status",
        endusers.EndUserViewSet.as_view({"put": "set_status"}),
    ),
    path("uflow/admin/enduser/import", ImportViewSet.as_view({"post": "create"})),
    path("uflow/admin/enduser/export", ExportViewSet.as_view({"post": "create"})),
    path("uflow/auth/enduser/login", signin.EndUserSignInViewSet.as_view({"post": "login"})),
    # Tenants
    path("uflow/admin/tenants", TenantViewSet.as_view({"get": "list", "post": "create"})),
    path(
        "uflow/admin/tenants/<str:tenant_id>",
        TenantViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
    ),
    path(
        "uflow/admin/tenants/<str:tenant_id>/settings",
        TenantSettingsViewSet.as_view({"get": "retrieve", "patch": "partial_update"}),
    ),
    path(
        "uflow/admin/tenants/<str:tenant_id>/branding",
        BrandingViewSet.as_view({"get": "retrieve", "patch": "partial_update"}),
    ),
    # Health
    path("uflow/health", HealthViewSet.as_view({"get": "health"})),
    path("uflow/ready", HealthViewSet.as_view({"get": "ready"})),
    path("uflow/live", HealthViewSet.as_view({"get": "live"})),
    # Tokens
    path("authmgr/token", TokenViewSet.as_view({"post": "token"})),
    path("authmgr/token/revoke", TokenViewSet.as_view({"post": "revoke"})),
    path("authmgr/token/introspect", TokenViewSet.as_view({"post": "introspect"})),
    path("authmgr/logout", signin.SignOutViewSet.as_view({"post": "logout"})),
    path(".well-known/jwks.json", WellKnownViewSet.as_view({"get": "jwks"})),
    path(".well-known/oauth-authorization-server", WellKnownViewSet.as_view({"get": "metadata"})),
    path("authmgr/sessions", signin.SessionViewSet.as_view({"get": "list", "delete": "destroy_all"})),
    path("authmgr/sessions/<str:session_id>", signin.SessionViewSet.as_view({"delete": "destroy"})),
    # Validation and profile
    path("authmgr/validate", ValidationViewSet.as_view({"get": "validate"})),
    path("authmgr/validate/scope", ValidationViewSet.as_view({"get": "scope"})),
    path("authmgr/validate/resource", ValidationViewSet.as_view({"get": "resource"})),
    path("authmgr/validate/permissions", ValidationViewSet.as_view({"post": "permissions"})),
    path("authmgr/profile", ProfileViewSet.as_view({"get": "retrieve", "put": "update"})),
    path("authmgr/profile/password", PasswordViewSet.as_view({"post": "change"})),
    # Forgotten passwords
    path("uflow/auth/admin/password/forgot", ResetViewSet.as_view({"post": "admin_forgot"})),
    path("uflow/auth/admin/password/reset", ResetViewSet.as_view({"post": "admin_reset"})),
    path("uflow/auth/enduser/password/forgot", ResetViewSet.as_view({"post": "end_user_forgot"})),
    path("uflow/auth/enduser/password/reset", ResetViewSet.as_view({"post": "end_user_reset"})),
    # Clients
    path("clientms/tenants/<str:tenant_id>/clients", ClientViewSet.as_view({"get": "list", "post": "create"})),
    path(
        "clientms/tenants/<str:tenant_id>/clients/<str:client_id>",
        ClientViewSet.as_view({"get": "retrieve", "put": "update", "patch": "partial_update", "delete": "destroy"}),
    ),
    path(
        "clientms/tenants/<str:tenant_id>/clients/<str:client_id>/activate",
        ClientViewSet.as_view({"patch": "activate"}),
    ),
    path(
        "clientms/tenants/<str:tenant_id>/clients/<str:client_id>/deactivate",
        ClientViewSet.as_view({"patch": "deactivate"}),
    ),
    path("clientms/tenants/<str:tenant_id>/clients/<str:client_id>/secret", ClientViewSet.as_view({"post": "secret"})),
    # Roles and groups of end users
    path("authmgr/roles", RoleViewSet.as_view({"get": "list", "post": "create"})),
    path("authmgr/roles/<str:role_id>", RoleViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"})),
    path(
        "authmgr/roles/<str:role_id>/bindings",
        RoleViewSet.as_view({"get": "bindings", "post": "bind", "delete": "unbind"}),
    ),
    path("authmgr/groups", GroupViewSet.as_view({"get": "list", "post": "create"})),
    path(
        "authmgr/groups/<str:group_id>", GroupViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"})
    ),
    path(
        "authmgr/groups/<str:group_id>/users",
        GroupViewSet.as_view({"get": "members", "post": "join", "delete": "leave"}),
    ),
    # E-mail addresses
    path("uflow/user/email/verify", EmailVerificationViewSet.as_view({"post": "verify"})),
    path("uflow/user/email/undo", EmailProofViewSet.as_view({"post": "undo"})),
    path("uflow/user/email/resend", EmailProofViewSet.as_view({"post": "resend"})),
    # Invitations
    path("uflow/admin/invitations", InvitationViewSet.as_view({"get": "list", "post": "create"})),
    path("uflow/admin/invitations/<str:invitation_id>/resend", InvitationViewSet.as_view({"post": "resend"})),
    path("uflow/admin/invitations/<str:invitation_id>", InvitationViewSet.as_view({"delete": "destroy"})),
    path("uflow/invitations/accept", AcceptanceViewSet.as_view({"post": "accept"})),
    # Directories
    path("uflow/directory/configs", DirectoryViewSet.as_view({"get": "list", "post": "create"})),
    path(
        "uflow/directory/configs/<str:config_id>",
        DirectoryViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}),
    ),
    path("uflow/directory/configs/<str:config_id>/test", DirectoryViewSet.as_view({"post": "test"})),
    path("uflow/directory/configs/<str:config_id>/sync", DirectoryViewSet.as_view({"post": "sync"})),
    path("uflow/directory/configs/<str:config_id>/runs", DirectoryViewSet.as_view({"get": "runs"})),
    # Pages behind the links of mails
    path("password/reset", landing_page, {"template": "pages/password_reset.html"}),
    path("email/undo", landing_page, {"template": "pages/email_undo.html"}),
    path("email/verify", landing_page, {"template": "pages/email_verify.html"}),
    path("invitations/accept", landing_page, {"template": "pages/invitation_accept.html"}),
    # Webhooks
    path("uflow/webhooks/events", WebhookViewSet.as_view({"get": "events"})),
    path("uflow/webhooks/endpoints", WebhookViewSet.as_view({"get": "list", "post": "create"})),
    path(
        "uflow/webhooks/endpoints/<str:endpoint_id>",
        WebhookViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
    ),
    path("uflow/webhooks/endpoints/<str:endpoint_id>/secret", WebhookViewSet.as_view({"post": "rotate"})),
    path("uflow/webhooks/endpoints/<str:endpoint_id>/test", WebhookViewSet.as_view({"post": "test"})),
    path("uflow/webhooks/endpoints/<str:endpoint_id>/messages", WebhookViewSet.as_view({"get": "messages"})),
    path("uflow/webhooks/endpoints/<str:endpoint_id>/replay", WebhookViewSet.as_view({"post": "replay"})),
    # Domains
    path("uflow/federation/domains", DomainViewSet.as_view({"get": "list", "post": "create"})),
    path(
        "uflow/federation/domains/<str:domain_id>",
        DomainViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
    ),
    path("uflow/federation/domains/<str:domain_id>/verify", DomainViewSet.as_view({"post": "verify"})),
    # Audit
    path("uflow/admin/audit", AuditViewSet.as_view({"get": "list"})),
]
