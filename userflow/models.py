"""Re-exports the rooms' models so that Django finds them."""

# ruff: noqa: F401  # re-exports

from userflow.accounts.models import (
    AdminRole,
    AdminUser,
    Client,
    EndUser,
    EndUserCount,
    Group,
    GroupMembership,
    Role,
    RoleBinding,
)
from userflow.accounts.session_models import (
    AdminAttempts,
    AdminEnrollmentWindow,
    AdminRefreshToken,
    AdminSession,
    AdminTicket,
    EndUserAttempts,
    EndUserEnrollmentWindow,
    EndUserRefreshToken,
    EndUserSession,
    EndUserTicket,
)
from userflow.branding.models import Branding
from userflow.clients.models import PendingClientChange
from userflow.credentials.models import AdminEmailProof, AdminEmailUndo, EmailProof, EndUserEmailUndo
from userflow.directory.models import DirectoryConfig, DirectoryLink, DirectoryRun
from userflow.domains.models import TenantDomain
from userflow.events.models import WebhookEndpoint, WebhookMessage
from userflow.invitations.models import AdminInvitation, EndUserInvitation
from userflow.sessions.models import RevokedToken, SigningKey, TenantSigningKey
from userflow.transfer.models import EndUserImport
