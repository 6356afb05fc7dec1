"""Every permission of the platform and the built-in roles of admin users (contract.md section 2)."""

from typing import Final

TENANT_PERMISSIONS: Final[tuple[str, ...]] = tuple(
    f"{resource}:{action}"
    for resource, actions in {
        "services": "read write delete credentials",
        "admins": "read write",
        "endusers": "read write delete",
        "clients": "read write",
        "groups": "read write",
        "roles": "read write",
        "invitations": "read write",
        "directory": "read write sync",
        "sessions": "read write",
        "webhooks": "read write",
        "audit": "read",
    }.items()
    for action in actions.split()
)
OPERATOR_PERMISSIONS: Final[tuple[str, ...]] = ("tenants:read", "tenants:write")
EVERY_PERMISSION: Final[tuple[str, ...]] = TENANT_PERMISSIONS + OPERATOR_PERMISSIONS

OPERATOR: Final = "operator"
TENANT_ADMIN: Final = "tenant-admin"
BUILT_IN_ROLES: Final[dict[str, tuple[str, ...]]] = {
    OPERATOR: EVERY_PERMISSION,
    TENANT_ADMIN: TENANT_PERMISSIONS,
    "service-manager": tuple(p for p in TENANT_PERMISSIONS if p.startswith("services:")),
    "user-manager": tuple(
        p for p in TENANT_PERMISSIONS if p.split(":")[0] in {"endusers", "groups", "roles", "invitations", "sessions"}
    ),
    "auditor": tuple(p for p in TENANT_PERMISSIONS if p.endswith(":read")),
}
