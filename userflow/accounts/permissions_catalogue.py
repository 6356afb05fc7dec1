"""Every permission of the platform and the built-in roles of admin users."""

from typing import Final

TENANT_PERMISSIONS: Final[tuple[str, ...]] = tuple(
    f"{resource}:{action}"
    for resource, actions in {
        "services": "read write delete credentials",
        "admins": "read write",
        "endusers": "read write delete factors export_hashes history",
        "clients": "read write",
        "groups": "read write",
        "roles": "read write",
        "invitations": "read write",
        "directory": "read write sync",
        "sessions": "read write",
        "webhooks": "read write",
        "domains": "read write",
        "audit": "read",
    }.items()
    for action in actions.split()
)
# Not for machines: no client holds these. Reset factors and issue enrollment passes; export password hashes, which only
# admins and operators with all rights of their side may do.
FACTORS: Final = "endusers:factors"
EXPORT_HASHES: Final = "endusers:export_hashes"
# See the events of one user on the user's page in the console. `audit:read`, which opens the whole log, includes it.
HISTORY: Final = "endusers:history"
OPERATOR_PERMISSIONS: Final[tuple[str, ...]] = ("tenants:read", "tenants:write")
EVERY_PERMISSION: Final[tuple[str, ...]] = TENANT_PERMISSIONS + OPERATOR_PERMISSIONS
# Of the default role of end users: what each user may do with the own record.
SELF_PERMISSIONS: Final[tuple[str, ...]] = ("profile:read", "profile:write")
# A domain decides where the users of a tenant type their passwords.
CHANGE_DOMAINS: Final = "domains:write"
# What no client may have as a scope.
USERS_ONLY_PERMISSIONS: Final[tuple[str, ...]] = (
    *OPERATOR_PERMISSIONS,
    FACTORS,
    EXPORT_HASHES,
    HISTORY,
    CHANGE_DOMAINS,
)
CLIENT_SCOPES: Final[tuple[str, ...]] = tuple(p for p in EVERY_PERMISSION if p not in USERS_ONLY_PERMISSIONS)

OPERATOR: Final = "operator"
TENANT_ADMIN: Final = "tenant-admin"
BUILT_IN_ROLES: Final[dict[str, tuple[str, ...]]] = {
    OPERATOR: EVERY_PERMISSION,
    TENANT_ADMIN: TENANT_PERMISSIONS,
    "service-manager": tuple(p for p in TENANT_PERMISSIONS if p.startswith("services:")),
    "user-manager": tuple(
        p
        for p in TENANT_PERMISSIONS
        if p.split(":")[0] in {"endusers", "groups", "roles", "invitations", "sessions"}
        and p not in (EXPORT_HASHES, HISTORY)
    ),
    "auditor": tuple(p for p in TENANT_PERMISSIONS if p.endswith(":read")),
}
