"""Rank and reach: whether a caller may decide about what holds, or can act with, permissions.

Reach is what an object can act as, not what it lists: a first-party client has no scopes and acts with everything that its
users may do. What is unknown counts as everything. Every entry point asks `require_reach` with a computed `Reach`; the other
functions here are its forms for users and for roles. `userflow.sessions.assurance` asks what the session has proven.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.db.models import Q

from userflow.accounts.models import Account, AdminUser, Group, Role, RoleBinding
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION, SELF_PERMISSIONS, TENANT_PERMISSIONS
from userflow.accounts.principals import Principal
from userflow.errors import GrantsMoreThanHeld


@dataclass(frozen=True, slots=True)
class Reach:
    """What an object can act as."""

    permissions: frozenset[str] = frozenset()
    # Whether it can act as users who have not agreed to it: with their tokens, their sessions or the links in their mails.
    # Only admin users decide about that. A machine never does, whichever scopes it has.
    as_users: bool = False


# Of what acts as the users of a tenant, and of what is not known. Permissions that the tenant defines are not listed: a caller
# who holds all of these holds `roles:write`, and so counts as holding them (`lacking`).
EVERYTHING: Final = Reach(frozenset(TENANT_PERMISSIONS), as_users=True)


def require_reach(by: Principal | None, reach: Reach, says: str = GrantsMoreThanHeld.message) -> None:
    """Raise GrantsMoreThanHeld (403), which says why, if the reach is beyond the caller. None is a command on the machine."""
    if by is not None and (lacking(by, reach.permissions) or (reach.as_users and not by.is_admin)):
        raise GrantsMoreThanHeld(says)


def lacking(by: Principal, permissions: Iterable[str]) -> set[str]:
    """Return those of the permissions that are beyond the caller.

    The caller must hold each of the platform's permissions itself. The permissions that a tenant defines mean something
    to the tenant's applications only, and admin users never hold one. An admin user with `roles:write` can bind them to
    any user of the tenant, so they count as held; otherwise a tenant's admins could not manage their own users. A client
    needs each of them as a scope: its secret must not give more access than its scopes.
    """
    beyond = set(permissions) - by.permissions
    return beyond & set(EVERY_PERMISSION) if by.is_admin and by.may("roles:write") else beyond


def lacking_for_user(by: Principal, permissions: Iterable[str]) -> set[str]:
    """Return the same for permissions of an end user, without those that every registered user has over itself."""
    return lacking(by, set(permissions).difference(SELF_PERMISSIONS))


def require_grantable(by: Principal | None, permissions: Iterable[str]) -> None:
    """Raise GrantsMoreThanHeld (403) if any of the permissions, which end users would get, is beyond the caller."""
    _require_held(by, permissions, to="grant")


def require_revocable(by: Principal | None, permissions: Iterable[str]) -> None:
    """Raise GrantsMoreThanHeld (403) if any permission that end users would lose is beyond the caller."""
    _require_held(by, permissions, to="take away")


def _require_held(by: Principal | None, permissions: Iterable[str], *, to: str) -> None:
    beyond = frozenset() if by is None else frozenset(lacking_for_user(by, permissions))
    require_reach(by, Reach(beyond), f"You cannot {to} {', '.join(sorted(beyond))}: you do not hold it yourself.")


def must_outrank(by: Principal | None, user: Account) -> None:
    """Raise GrantsMoreThanHeld (403) unless the caller holds every permission of this user, an end user of the entered tenant
    or an admin user.

    A caller who could change such a user's address or reset the factors could take over the permissions.
    """
    require_reach(by, reach_of_user(user), "This user holds permissions that you do not hold.")


def reach_of_user(user: Account) -> Reach:
    """Return what an admin user, or an end user of the entered tenant, holds by roles and groups."""
    if isinstance(user, AdminUser):
        return Reach(frozenset(permission for role in user.roles.all() for permission in role.permissions))
    # Not by joins: a role with many bindings and many members of its groups would be read once for each pair of them.
    direct = RoleBinding.objects.filter(user=user.pk).values("role_id")
    carried = Group.roles.through.objects.filter(group__memberships__user=user.pk).values("role_id")
    roles = Role.objects.filter(Q(pk__in=direct) | Q(pk__in=carried))
    permissions = frozenset(
        permission for granted in roles.values_list("permissions", flat=True) for permission in granted
    )
    return Reach(permissions.difference(SELF_PERMISSIONS))
