"""Paths of userflow, in the order of the specification."""

from django.urls import URLPattern, path

from identity_platform.api.views import ApiViewSet
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

# What most paths of one record allow, besides changing it.
RECORD = {"get": "retrieve", "delete": "destroy"}


def route(address: str, views: type[ApiViewSet], **actions: str) -> URLPattern:
    """Return the pattern of a path, with the action of the view set for each HTTP method."""
    return path(address, views.as_view({**actions}))


urlpatterns = [
    # Admin users
    route("uflow/admin/users", AdminUserViewSet, post="create", get="list"),
    route("uflow/admin/auth/login", signin.AdminSignInViewSet, post="login"),
    route("uflow/admin/users/me", AdminUserViewSet, get="me"),
    route("uflow/admin/users/active", AdminUserViewSet, post="activity"),
    route("uflow/admin/users/<str:user_id>", AdminUserViewSet, put="update", **RECORD),
    # End users
    route("uflow/user/enduser/list", endusers.EndUserListViewSet, get="list", post="search"),
    route("uflow/admin/enduser/list", endusers.EndUserListViewSet, post="by_project"),
    route("uflow/user/clients/register", endusers.RegistrationViewSet, post="create"),
    route("uflow/admin/enduser/active", endusers.EndUserViewSet, post="set_active"),
    route("uflow/user/enduser/delete", endusers.EndUserViewSet, post="deactivate"),
    route("uflow/user/enduser/delete_all", endusers.EndUserViewSet, post="erase"),
    route("uflow/user/enduser/databases", endusers.MappingViewSet, get="retrieve"),
    route("uflow/user/enduser/<str:tenant_id>/<str:user_id>", endusers.EndUserViewSet, put="update", **RECORD),
    route("uflow/user/enduser/<str:tenant_id>/<str:user_id>/status", endusers.EndUserViewSet, put="set_status"),
    route("uflow/admin/enduser/import", ImportViewSet, post="create"),
    route("uflow/admin/enduser/export", ExportViewSet, post="create"),
    route("uflow/auth/enduser/login", signin.EndUserSignInViewSet, post="login"),
    # Tenants
    route("uflow/admin/tenants", TenantViewSet, get="list", post="create"),
    route("uflow/admin/tenants/<str:tenant_id>", TenantViewSet, patch="partial_update", **RECORD),
    route(
        "uflow/admin/tenants/<str:tenant_id>/settings", TenantSettingsViewSet, get="retrieve", patch="partial_update"
    ),
    route("uflow/admin/tenants/<str:tenant_id>/branding", BrandingViewSet, get="retrieve", patch="partial_update"),
    # Health
    route("uflow/health", HealthViewSet, get="health"),
    route("uflow/ready", HealthViewSet, get="ready"),
    route("uflow/live", HealthViewSet, get="live"),
    # Tokens
    route("authmgr/token", TokenViewSet, post="token"),
    route("authmgr/token/revoke", TokenViewSet, post="revoke"),
    route("authmgr/token/introspect", TokenViewSet, post="introspect"),
    route("authmgr/logout", signin.SignOutViewSet, post="logout"),
    route(".well-known/jwks.json", WellKnownViewSet, get="jwks"),
    route(".well-known/oauth-authorization-server", WellKnownViewSet, get="metadata"),
    route("authmgr/sessions", signin.SessionViewSet, get="list", delete="destroy_all"),
    route("authmgr/sessions/<str:session_id>", signin.SessionViewSet, delete="destroy"),
    # Validation and profile
    route("authmgr/validate", ValidationViewSet, get="validate"),
    route("authmgr/validate/scope", ValidationViewSet, get="scope"),
    route("authmgr/validate/resource", ValidationViewSet, get="resource"),
    route("authmgr/validate/permissions", ValidationViewSet, post="permissions"),
    route("authmgr/profile", ProfileViewSet, get="retrieve", put="update"),
    route("authmgr/profile/password", PasswordViewSet, post="change"),
    # Forgotten passwords
    route("uflow/auth/admin/password/forgot", ResetViewSet, post="admin_forgot"),
    route("uflow/auth/admin/password/reset", ResetViewSet, post="admin_reset"),
    route("uflow/auth/enduser/password/forgot", ResetViewSet, post="end_user_forgot"),
    route("uflow/auth/enduser/password/reset", ResetViewSet, post="end_user_reset"),
    # Clients
    route("clientms/tenants/<str:tenant_id>/clients", ClientViewSet, get="list", post="create"),
    route(
        "clientms/tenants/<str:tenant_id>/clients/<str:client_id>",
        ClientViewSet,
        put="update",
        patch="partial_update",
        **RECORD,
    ),
    route("clientms/tenants/<str:tenant_id>/clients/<str:client_id>/activate", ClientViewSet, patch="activate"),
    route("clientms/tenants/<str:tenant_id>/clients/<str:client_id>/deactivate", ClientViewSet, patch="deactivate"),
    route("clientms/tenants/<str:tenant_id>/clients/<str:client_id>/secret", ClientViewSet, post="secret"),
    # Roles and groups of end users
    route("authmgr/roles", RoleViewSet, get="list", post="create"),
    route("authmgr/roles/<str:role_id>", RoleViewSet, put="update", **RECORD),
    route("authmgr/roles/<str:role_id>/bindings", RoleViewSet, get="bindings", post="bind", delete="unbind"),
    route("authmgr/groups", GroupViewSet, get="list", post="create"),
    route("authmgr/groups/<str:group_id>", GroupViewSet, put="update", **RECORD),
    route("authmgr/groups/<str:group_id>/users", GroupViewSet, get="members", post="join", delete="leave"),
    # E-mail addresses
    route("uflow/user/email/verify", EmailVerificationViewSet, post="verify"),
    route("uflow/user/email/undo", EmailProofViewSet, post="undo"),
    route("uflow/user/email/resend", EmailProofViewSet, post="resend"),
    # Invitations
    route("uflow/admin/invitations", InvitationViewSet, get="list", post="create"),
    route("uflow/admin/invitations/<str:invitation_id>/resend", InvitationViewSet, post="resend"),
    route("uflow/admin/invitations/<str:invitation_id>", InvitationViewSet, delete="destroy"),
    route("uflow/invitations/accept", AcceptanceViewSet, post="accept"),
    # Directories
    route("uflow/directory/configs", DirectoryViewSet, get="list", post="create"),
    route("uflow/directory/configs/<str:config_id>", DirectoryViewSet, put="update", **RECORD),
    route("uflow/directory/configs/<str:config_id>/test", DirectoryViewSet, post="test"),
    route("uflow/directory/configs/<str:config_id>/sync", DirectoryViewSet, post="sync"),
    route("uflow/directory/configs/<str:config_id>/runs", DirectoryViewSet, get="runs"),
    # Pages behind the links of mails
    path("password/reset", landing_page, {"template": "pages/password_reset.html"}),
    path("email/undo", landing_page, {"template": "pages/email_undo.html"}),
    path("email/verify", landing_page, {"template": "pages/email_verify.html"}),
    path("invitations/accept", landing_page, {"template": "pages/invitation_accept.html"}),
    # Webhooks
    route("uflow/webhooks/events", WebhookViewSet, get="events"),
    route("uflow/webhooks/endpoints", WebhookViewSet, get="list", post="create"),
    route("uflow/webhooks/endpoints/<str:endpoint_id>", WebhookViewSet, patch="partial_update", **RECORD),
    route("uflow/webhooks/endpoints/<str:endpoint_id>/secret", WebhookViewSet, post="rotate"),
    route("uflow/webhooks/endpoints/<str:endpoint_id>/test", WebhookViewSet, post="test"),
    route("uflow/webhooks/endpoints/<str:endpoint_id>/messages", WebhookViewSet, get="messages"),
    route("uflow/webhooks/endpoints/<str:endpoint_id>/replay", WebhookViewSet, post="replay"),
    # Domains
    route("uflow/federation/domains", DomainViewSet, get="list", post="create"),
    route("uflow/federation/domains/<str:domain_id>", DomainViewSet, patch="partial_update", **RECORD),
    route("uflow/federation/domains/<str:domain_id>/verify", DomainViewSet, post="verify"),
    # Audit
    route("uflow/admin/audit", AuditViewSet, get="list"),
]
