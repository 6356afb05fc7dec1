"""Re-exports the rooms' models so that Django finds them."""

from userflow.admins.models import AdminRole, AdminUser
from userflow.clients.models import Client
from userflow.directory.models import DirectoryConfig, DirectoryLink, DirectoryRun
from userflow.email.models import AdminEmailProof, AdminEmailUndo, EmailProof, EndUserEmailUndo
from userflow.endusers.models import EndUser, EndUserCount
from userflow.groups.models import Group, GroupMembership
from userflow.invitations.models import AdminInvitation, EndUserInvitation
from userflow.roles.models import Role, RoleBinding
from userflow.signin.models import (
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
from userflow.tokens.models import RevokedToken, SigningKey
from userflow.transfer.models import EndUserImport
from userflow.webhooks.models import WebhookEndpoint, WebhookMessage

__all__ = [
    "AdminAttempts",
    "AdminEmailProof",
    "AdminEmailUndo",
    "AdminEnrollmentWindow",
    "AdminInvitation",
    "AdminRefreshToken",
    "AdminRole",
    "AdminSession",
    "AdminTicket",
    "AdminUser",
    "Client",
    "DirectoryConfig",
    "DirectoryLink",
    "DirectoryRun",
    "EmailProof",
    "EndUser",
    "EndUserAttempts",
    "EndUserCount",
    "EndUserEmailUndo",
    "EndUserEnrollmentWindow",
    "EndUserImport",
    "EndUserInvitation",
    "EndUserRefreshToken",
    "EndUserSession",
    "EndUserTicket",
    "Group",
    "GroupMembership",
    "RevokedToken",
    "Role",
    "RoleBinding",
    "SigningKey",
    "WebhookEndpoint",
    "WebhookMessage",
]
