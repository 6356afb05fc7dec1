"""Custom roles of admin users, the same for all tenants: any permissions that the operator who makes a role holds."""

import re
from collections.abc import Collection
from typing import Final

from django.db import transaction

from identity_platform.api.errors import NotAllowed, ValidationFailed
from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql.row_errors import first_or, unique_or
from identity_platform.row_checks import RowCheck, no_check
from userflow.accounts.models import AdminRole
from userflow.accounts.permissions_catalogue import (
    BUILT_IN_ROLES,
    EVERY_PERMISSION,
    EXPORT_HASHES,
    OPERATOR_PERMISSIONS,
)
from userflow.accounts.principals import OPERATOR, Principal
from userflow.errors import AdminRoleInUse, BuiltInAdminRole, GrantsMoreThanHeld, RoleNameTaken, UnknownAdminRole
from userflow.invitations.models import AdminInvitation
from userflow.sessions.assurance import Action, require_assurance

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_TARGET: Final = "admin_role"
_OF_A_TENANT: Final = "Admins of tenants have this role, and permissions for tenants are for operators only."


def create_admin_role(*, name: str, permissions: Collection[str], by: Principal) -> AdminRole:
    """Create a role. Raises NotAllowed (the caller is no operator), ValidationFailed, RoleNameTaken, GrantsMoreThanHeld,
    InsufficientAuthentication.
    """
    grantable = _grantable(permissions, by)
    if _NAME.fullmatch(name) is None:
        text = "Use a-z, 0-9 and dashes, no dash at either end, and at most 63 characters."
        raise ValidationFailed(details={"name": [text]})
    role = AdminRole(name=name, permissions=grantable)
    with unique_or(RoleNameTaken), transaction.atomic():
        role.save(force_insert=True)
        record_for_platform("admin_role.created", target=(_TARGET, role.pk), details={"permissions": grantable})
    return role


def update_admin_role(
    *, role_id: int, permissions: Collection[str], by: Principal, check: RowCheck = no_check
) -> AdminRole:
    """Replace the permissions of a role. They apply to its holders from the next request on.

    Raises NotAllowed (the caller is no operator), ValidationFailed, UnknownAdminRole, BuiltInAdminRole, GrantsMoreThanHeld (for
    permissions that the role gets or has), InsufficientAuthentication.
    """
    grantable = _grantable(permissions, by)
    with transaction.atomic():
        role = _locked(role_id, by)
        check()
        if set(grantable) & set(OPERATOR_PERMISSIONS) and _is_of_a_tenant(role):
            raise ValidationFailed(details={"permissions": [_OF_A_TENANT]})
        details = {
            "added": sorted(set(grantable) - set(role.permissions)),
            "removed": sorted(set(role.permissions) - set(grantable)),
        }
        role.permissions = grantable
        role.save(update_fields=["permissions"])
        record_for_platform("admin_role.updated", target=(_TARGET, role.pk), details=details)
    return role


def delete_admin_role(*, role_id: int, by: Principal) -> None:
    """Delete a role that no admin user and no pending invitation has.

    A pending invitation names its roles: a later role of that name could have more permissions. Raises NotAllowed (the caller
    is no operator), UnknownAdminRole, BuiltInAdminRole, AdminRoleInUse, GrantsMoreThanHeld, InsufficientAuthentication.
    """
    _require_operator(by)
    with transaction.atomic():
        role = _locked(role_id, by)
        invited = AdminInvitation.objects.filter(AdminInvitation.OPEN, roles__contains=[role.name])
        if role.admin_users.exists() or invited.exists():
            raise AdminRoleInUse
        record_for_platform("admin_role.deleted", target=(_TARGET, role.pk), details={"permissions": role.permissions})
        role.delete()


def _is_of_a_tenant(role: AdminRole) -> bool:
    """Return whether an admin of a tenant has the role, or will have it by an invitation."""
    invited = AdminInvitation.objects.filter(AdminInvitation.OPEN, roles__contains=[role.name], tenant_id__isnull=False)
    return role.admin_users.filter(tenant_id__isnull=False).exists() or invited.exists()


def is_built_in(role: AdminRole) -> bool:
    """Return whether the role is one that the platform needs: `tenant-admin` and `operator` keep the last admin."""
    return role.name in BUILT_IN_ROLES


def _require_operator(by: Principal) -> None:
    """Raise NotAllowed for tenant admins: a role is offered in every tenant."""
    if by.kind != OPERATOR:
        raise NotAllowed("Roles of admin users are managed by operators.")
    require_assurance(Action.GRANT_ROLES, by)


def _grantable(permissions: Collection[str], by: Principal) -> list[str]:
    _require_operator(by)
    unknown = sorted(set(permissions) - set(EVERY_PERMISSION))
    if unknown or not permissions:
        told = [f"Permission {name!r} does not exist." for name in unknown]
        raise ValidationFailed(details={"permissions": told or ["Choose at least one permission."]})
    if EXPORT_HASHES in permissions:
        told = ["Only the roles operator and tenant-admin export password hashes."]
        raise ValidationFailed(details={"permissions": told})
    if not set(permissions) <= by.permissions:
        raise GrantsMoreThanHeld
    return sorted(set(permissions))


def _locked(role_id: int, by: Principal) -> AdminRole:
    role = first_or(AdminRole.objects.filter(pk=role_id).select_for_update(), UnknownAdminRole)
    if is_built_in(role):
        raise BuiltInAdminRole
    if not set(role.permissions) <= by.permissions:
        raise GrantsMoreThanHeld
    return role
