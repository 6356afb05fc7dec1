"""Tags of the API document: features, and the paths of their operations."""

from collections.abc import Mapping
from typing import Final

from identity_platform.api.tags import Tag

TAGS: Final[Mapping[str, Tag]] = {
    "Sign-in": Tag("Applications", 10, "The first step of admin users and end users, and forgotten passwords."),
    "Tokens": Tag(
        "Applications",
        20,
        "The OAuth 2.0 token endpoint, introspection, revocation, and the keys that verify tokens elsewhere.",
    ),
    "Sessions": Tag("Applications", 30, "List sessions, step up, sign out."),
    "Access checks": Tag("Applications", 50, "Validate tokens and list their permissions."),
    "Registration": Tag("Applications", 60, "Register as an end user, accept an invitation."),
    "Profile": Tag("Applications", 70, "The user's own name, e-mail address and password."),
    "E-mail verification": Tag("Applications", 80, "Verify an e-mail address."),
    "End users": Tag("Management", 10, "The people of a tenant: list, change, deactivate, erase."),
    "Invitations": Tag("Management", 30, "Invite users by e-mail."),
    "Import and export": Tag("Management", 40, "Import and export users with their password hashes."),
    "Groups": Tag("Management", 50, "Groups of end users and their members."),
    "Roles": Tag("Management", 60, "Roles, their permissions and their users."),
    "Clients": Tag("Management", 70, "The applications of a tenant and their secrets."),
    "Directories": Tag("Management", 90, "Active Directory and Entra ID: configure, test, synchronise."),
    "Domains": Tag("Management", 100, "Domains of a tenant, verified by DNS."),
    "Webhooks": Tag("Management", 110, "Webhook endpoints, deliveries and retries."),
    "Admin users": Tag("Management", 120, "Administrators of tenants and operators of the platform."),
    "Tenants": Tag("Management", 130, "For operators: create, change, suspend and delete tenants."),
    "Audit": Tag("Management", 140, "Who did what, on what, from where."),
    "Health": Tag("Management", 150, "Probes."),
}
# The longest prefix counts.
TAG_OF_PREFIX: Final[Mapping[str, str]] = {
    "/.well-known/jwks.json": "Tokens",
    "/.well-known/oauth-authorization-server": "Tokens",
    "/authmgr/groups": "Groups",
    "/authmgr/logout": "Sessions",
    "/authmgr/profile": "Profile",
    "/authmgr/roles": "Roles",
    "/authmgr/sessions": "Sessions",
    "/authmgr/token": "Tokens",
    "/authmgr/validate": "Access checks",
    "/clientms/": "Clients",
    "/uflow/admin/audit": "Audit",
    "/uflow/admin/auth/": "Sign-in",
    "/uflow/admin/enduser/": "End users",
    "/uflow/admin/enduser/export": "Import and export",
    "/uflow/admin/enduser/import": "Import and export",
    "/uflow/admin/invitations": "Invitations",
    "/uflow/admin/tenants": "Tenants",
    "/uflow/admin/users": "Admin users",
    "/uflow/auth/": "Sign-in",
    "/uflow/directory/": "Directories",
    "/uflow/federation/": "Domains",
    "/uflow/health": "Health",
    "/uflow/invitations/": "Registration",
    "/uflow/live": "Health",
    "/uflow/ready": "Health",
    "/uflow/user/clients/register": "Registration",
    "/uflow/user/email/": "E-mail verification",
    "/uflow/user/enduser/": "End users",
    "/uflow/webhooks/": "Webhooks",
}
