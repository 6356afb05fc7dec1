"""Roles of end users and their bindings."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Lower

from identity_platform.api.pagination import Page, filtered, page_of
from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.row_errors import first_or, unique_or
from identity_platform.row_checks import RowCheck, no_check
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.states import Purpose
from userflow.accounts.event_payloads import role_payload
from userflow.accounts.lookups import change_members
from userflow.accounts.members import page_of_members
from userflow.accounts.models import Role, RoleBinding
from userflow.accounts.principals import Principal
from userflow.accounts.rank import require_grantable, require_revocable
from userflow.errors import BuiltInRole, RoleNameTaken, UnknownRole, UnknownRoleId
from userflow.events.outbox import publish
from userflow.sessions.assurance import Action, require_assurance


def roles_named(names: Collection[str]) -> list[Role]:
    """Return the roles with these names, case-insensitively, and lock them until the transaction ends.

    So checks on them stay true and none is deleted meanwhile. Raises UnknownRole with the missing names.
    """
    names_by_key = {name.lower(): name for name in names}
    locked = Role.objects.annotate(key=Lower("name")).filter(key__in=names_by_key).select_for_update(no_key=True)
    roles: list[Role] = [*locked]
    missing = names_by_key.keys() - {role.name.lower() for role in roles}
    if missing:
        raise UnknownRole(
            details={"roles": [f"Role {names_by_key[name]!r} does not exist." for name in sorted(missing)]}
        )
    return roles


def list_roles(*, tenant_id: UUID, page: int, limit: int, name: str | None = None, user_id: UUID | None = None) -> Page:
    """Return one page of a tenant's roles, newest first.

    `name` matches a part of the name, case-insensitively; `user_id` is a user who has the roles directly or by a group.
    """
    with in_tenant(tenant_id, Purpose.READ):
        roles = filtered(Role.objects.all(), name__icontains=name)
        if user_id is not None:
            bound = RoleBinding.objects.filter(user_id=user_id).values("role_id")
            roles = roles.filter(Q(pk__in=bound) | Q(pk__in=Role.objects.filter(groups__memberships__user_id=user_id)))
        return page_of(roles.order_by("-created_at", "-id"), page, limit)


def find_role(*, tenant_id: UUID, role_id: UUID) -> Role:
    """Return one role. Raises UnknownRoleId."""
    with in_tenant(tenant_id, Purpose.READ):
        return _find_role(role_id)


def create_role(
    *, tenant_id: UUID, by: Principal, name: str, permissions: Sequence[str] = (), description: str = ""
) -> Role:
    """Create a role. Raises RoleNameTaken (case-insensitive), GrantsMoreThanHeld."""
    require_grantable(by, permissions)
    role = Role(name=name, description=description, permissions=sorted(set(permissions)))
    with in_tenant(tenant_id), unique_or(RoleNameTaken), tenant_atomic():
        role.save(force_insert=True)
        record_for_tenant("role.created", target=("role", role.pk), details={"permissions": role.permissions})
        publish("role.created", role_payload(role))
    return role


def update_role(
    *, tenant_id: UUID, by: Principal, role_id: UUID, changes: dict[str, Any], check: RowCheck = no_check
) -> Role:
    """Change `name`, `description`, `permissions` (replaced as a whole), if given.

    Raises UnknownRoleId, RoleNameTaken, BuiltInRole (renaming a built-in role), GrantsMoreThanHeld (added or
    removed permissions; renaming a role that holds more than the caller), InsufficientAuthentication (added permissions,
    renaming).
    """
    with in_tenant(tenant_id), unique_or(RoleNameTaken), tenant_atomic():
        role = _find_role(role_id, lock=True)
        check()
        if changes.get("name", role.name) != role.name:
            if role.built_in:
                raise BuiltInRole
            # Imports, invitations and groups refer to roles by name: a strong role that takes the name of a
            # plain one would be granted instead of it.
            if role.permissions:
                require_assurance(Action.GRANT_ROLES, by)
                require_grantable(by, role.permissions)
        details: dict[str, object] = {"changed": sorted(changes)}
        if "permissions" in changes:
            before, after = set(role.permissions), set(changes["permissions"])
            if after - before:
                require_assurance(Action.GRANT_ROLES, by)
            require_grantable(by, after - before)
            require_revocable(by, before - after)
            changes["permissions"] = sorted(after)
            details |= {"added": sorted(after - before), "removed": sorted(before - after)}
        for field, value in changes.items():
            setattr(role, field, value)
        role.save(update_fields=[*changes, "updated_at"])
        record_for_tenant("role.updated", target=("role", role.pk), details=details)
        publish("role.updated", role_payload(role, changed=details["changed"]))
    return role


def delete_role(*, tenant_id: UUID, by: Principal, role_id: UUID) -> None:
    """Delete a role with all its bindings. Raises UnknownRoleId, BuiltInRole, GrantsMoreThanHeld."""
    with in_tenant(tenant_id), tenant_atomic():
        role = _find_role(role_id, lock=True)
        if role.built_in:
            raise BuiltInRole
        require_revocable(by, role.permissions)
        _, removed = role.delete()
        record_for_tenant(
            "role.deleted", target=("role", role_id), details={"bindings": removed.get(RoleBinding._meta.label, 0)}
        )
        publish("role.deleted", {"role_id": role_id, "name": role.name})


def list_bindings(*, tenant_id: UUID, role_id: UUID, page: int, limit: int, cursor: str | None = None) -> Page:
    """Return one page of the users bound to the role, newest first. Raises UnknownRoleId, CursorInvalid."""
    with in_tenant(tenant_id, Purpose.READ):
        _find_role(role_id)
        members = RoleBinding.objects.filter(role_id=role_id)
        return page_of_members(members, holder=role_id, page=page, limit=limit, cursor=cursor)


def bind_users(*, tenant_id: UUID, by: Principal, role_id: UUID, user_ids: Collection[UUID]) -> int:
    """Bind the role to all of the users, or to none. Return how many were added.

    Raises UnknownRoleId, UnknownUsers, GrantsMoreThanHeld, InsufficientAuthentication.
    """
    require_assurance(Action.GRANT_ROLES, by)
    with in_tenant(tenant_id), tenant_atomic():
        # The lock prevents a change of its permissions between this check and the binding.
        role = _find_role(role_id, lock=True)
        require_grantable(by, role.permissions)
        return change_members(role, user_ids, add=True, audit="role.bound", event="role.assigned")


def unbind_users(*, tenant_id: UUID, by: Principal, role_id: UUID, user_ids: Collection[UUID]) -> int:
    """Unbind the role from all of the users, or from none. Return how many were removed. Applies at their next request.

    Raises UnknownRoleId, UnknownUsers, GrantsMoreThanHeld (the role holds more than the caller).
    """
    with in_tenant(tenant_id), tenant_atomic():
        role = _find_role(role_id, lock=True)
        require_revocable(by, role.permissions)
        return change_members(role, user_ids, add=False, audit="role.unbound", event="role.revoked")


def _find_role(role_id: UUID, *, lock: bool = False) -> Role:
    roles = Role.objects.select_for_update(no_key=True) if lock else Role.objects.all()
    return first_or(roles.filter(pk=role_id), UnknownRoleId)
