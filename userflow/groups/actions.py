"""Groups of end users: members have the roles of their groups."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from identity_platform.api.pagination import Page, filtered, page_of
from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.row_errors import first_or, unique_or
from identity_platform.row_checks import RowCheck, no_check
from tenants.entering.context import current_tenant, in_tenant, tenant_atomic
from tenants.states import Purpose
from userflow.accounts.event_payloads import group_payload
from userflow.accounts.lookups import change_members
from userflow.accounts.members import page_of_members
from userflow.accounts.models import Group, GroupMembership, Role
from userflow.accounts.principals import Principal
from userflow.accounts.rank import require_grantable, require_revocable
from userflow.errors import GroupNameTaken, UnknownGroup
from userflow.events.outbox import publish
from userflow.roles.actions import roles_named
from userflow.sessions.assurance import Action, require_assurance


def list_groups(
    *, tenant_id: UUID, page: int, limit: int, name: str | None = None, user_id: UUID | None = None
) -> Page:
    """Return one page of a tenant's groups with their roles, newest first.

    `name` matches a part of the name, case-insensitively; `user_id` is a member of the groups.
    """
    with in_tenant(tenant_id, Purpose.READ):
        groups = filtered(Group.objects.all(), name__icontains=name, memberships__user_id=user_id)
        return page_of(groups.prefetch_related("roles").order_by("-created_at", "-id"), page, limit)


def find_group(*, tenant_id: UUID, group_id: UUID) -> Group:
    """Return one group with its roles. Raises UnknownGroup."""
    with in_tenant(tenant_id, Purpose.READ):
        return _with_roles(_find_group(group_id))


def create_group(
    *, tenant_id: UUID, by: Principal, name: str, description: str = "", roles: Sequence[str] = ()
) -> Group:
    """Create a group with these roles.

    Raises GroupNameTaken, UnknownRole, GrantsMoreThanHeld, InsufficientAuthentication (a group with roles).
    """
    if roles:
        require_assurance(Action.GRANT_ROLES, by)
    group = Group(name=name, description=description)
    with in_tenant(tenant_id):
        with unique_or(GroupNameTaken), tenant_atomic():
            carried = roles_named(roles)
            require_grantable(by, _permissions(carried))
            group.save(force_insert=True)
            group.roles.set(carried)
            record_for_tenant("group.created", target=("group", group.pk), details=_ids(carried))
            publish("group.created", group_payload(group, _names(carried)))
        return _with_roles(group)


def update_group(
    *, tenant_id: UUID, by: Principal, group_id: UUID, changes: dict[str, Any], check: RowCheck = no_check
) -> Group:
    """Change `name`, `description`, `roles` (replaced as a whole), if given.

    Raises UnknownGroup, GroupNameTaken, UnknownRole, GrantsMoreThanHeld (added or removed roles; renaming a group
    that grants more than the caller holds), InsufficientAuthentication (added roles, renaming).
    """
    changes = dict(changes)
    names = changes.pop("roles", None)
    with in_tenant(tenant_id):
        with unique_or(GroupNameTaken), tenant_atomic():
            group = _find_group(group_id, lock=True)
            check()
            if changes.get("name", group.name) != group.name and (roles := list(group.roles.all())):
                # Directories give groups by their name: under that of another one it would be given to its people.
                require_assurance(Action.GRANT_ROLES, by)
                require_grantable(by, _permissions(roles))
            details: dict[str, object] = {"changed": sorted([*changes, *(["roles"] if names is not None else [])])}
            if names is not None:
                carried = roles_named(names)
                before = {role.pk: role for role in group.roles.all()}
                after = {role.pk: role for role in carried}
                if after.keys() - before.keys():
                    require_assurance(Action.GRANT_ROLES, by)
                require_grantable(by, _permissions(after[key] for key in after.keys() - before.keys()))
                require_revocable(by, _permissions(before[key] for key in before.keys() - after.keys()))
                group.roles.set(carried)
                details |= _ids(carried)
            for field, value in changes.items():
                setattr(group, field, value)
            group.save(update_fields=[*changes, "updated_at"])
            record_for_tenant("group.updated", target=("group", group.pk), details=details)
            if current_tenant().has_webhooks:
                publish("group.updated", group_payload(group, _names(group.roles.all()), changed=details["changed"]))
        return _with_roles(group)


def delete_group(*, tenant_id: UUID, by: Principal, group_id: UUID) -> None:
    """Delete a group. Its members lose its roles at their next request. Raises UnknownGroup, GrantsMoreThanHeld."""
    with in_tenant(tenant_id), tenant_atomic():
        group = _find_group(group_id, lock=True)
        require_revocable(by, _permissions(group.roles.all()))
        _, removed = group.delete()
        record_for_tenant(
            "group.deleted",
            target=("group", group_id),
            details={"members": removed.get(GroupMembership._meta.label, 0)},
        )
        publish("group.deleted", {"group_id": group_id, "name": group.name})


def list_members(*, tenant_id: UUID, group_id: UUID, page: int, limit: int, cursor: str | None = None) -> Page:
    """Return one page of the group's members, newest first. Raises UnknownGroup, CursorInvalid."""
    with in_tenant(tenant_id, Purpose.READ):
        _find_group(group_id)
        members = GroupMembership.objects.filter(group_id=group_id)
        return page_of_members(members, holder=group_id, page=page, limit=limit, cursor=cursor)


def add_members(*, tenant_id: UUID, by: Principal, group_id: UUID, user_ids: Collection[UUID]) -> int:
    """Add all of the users to the group, or none. Return how many were added.

    Raises UnknownGroup, UnknownUsers, GrantsMoreThanHeld (the group grants more than the caller
    holds), InsufficientAuthentication (a group with roles).
    """
    with in_tenant(tenant_id), tenant_atomic():
        group = _find_group(group_id, lock=True)
        if roles := list(group.roles.all()):
            require_assurance(Action.GRANT_ROLES, by)
            require_grantable(by, _permissions(roles))
        return change_members(group, user_ids, add=True, audit="group.joined", event="group.members_added")


def remove_members(*, tenant_id: UUID, by: Principal, group_id: UUID, user_ids: Collection[UUID]) -> int:
    """Remove all of the users from the group, or none. Return how many were removed. Applies at their next request.

    Raises UnknownGroup, UnknownUsers, GrantsMoreThanHeld (the group grants more than the caller holds).
    """
    with in_tenant(tenant_id), tenant_atomic():
        group = _find_group(group_id, lock=True)
        require_revocable(by, _permissions(group.roles.all()))
        return change_members(group, user_ids, add=False, audit="group.left", event="group.members_removed")


def _find_group(group_id: UUID, *, lock: bool = False) -> Group:
    groups = Group.objects.select_for_update(no_key=True) if lock else Group.objects.all()
    return first_or(groups.filter(pk=group_id), UnknownGroup)


def _with_roles(group: Group) -> Group:
    """Read the roles while the tenant is entered; serializers must not query."""
    return Group.objects.prefetch_related("roles").get(pk=group.pk)


def _permissions(roles: Iterable[Role]) -> set[str]:
    return {permission for role in roles for permission in role.permissions}


def _names(roles: Iterable[Role]) -> list[str]:
    return [role.name for role in roles]


def _ids(roles: list[Role]) -> dict[str, list[str]]:
    return {"roles": sorted(str(role.pk) for role in roles)}
