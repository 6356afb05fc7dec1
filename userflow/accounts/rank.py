"""Rank: a caller cannot grant, revoke or change what holds permissions that the caller lacks."""

from collections.abc import Iterable

from django.db.models import Q

from userflow.accounts.models import Account, AdminUser, Group, Role, RoleBinding
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION, SELF_PERMISSIONS
from userflow.accounts.principals import Principal
from userflow.errors import GrantsMoreThanHeld


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


def must_hold(by: Principal, permissions: Iterable[str], *, to: str) -> None:
    """Raise GrantsMoreThanHeld (403) if a permission of end users is beyond the caller; `to` is what the caller wants."""
    if beyond := lacking_for_user(by, permissions):
        raise GrantsMoreThanHeld(f"You cannot {to} {', '.join(sorted(beyond))}: you do not hold it yourself.")


def require_grantable(by: Principal, permissions: Iterable[str]) -> None:
    """Raise GrantsMoreThanHeld (403) if any of the permissions is beyond the caller."""
    must_hold(by, permissions, to="grant")


def require_revocable(by: Principal, permissions: Iterable[str]) -> None:
    """Raise GrantsMoreThanHeld (403) if any permission that users would lose is beyond the caller."""
    must_hold(by, permissions, to="take away")


def must_outrank(by: Principal, user: Account) -> None:
    """Raise GrantsMoreThanHeld (403) unless the caller holds every permission of this user, an end user of the entered tenant
    or an admin user.

    A caller who could change such a user's address or reset the factors could take over the permissions.
    """
    if isinstance(user, AdminUser):
        beyond = {permission for role in user.roles.all() for permission in role.permissions} - by.permissions
    else:
        # Not by joins: a role with many bindings and many members of its groups would be read once for each pair of them.
        direct = RoleBinding.objects.filter(user=user.pk).values("role_id")
        carried = Group.roles.through.objects.filter(group__memberships__user=user.pk).values("role_id")
        roles = Role.objects.filter(Q(pk__in=direct) | Q(pk__in=carried))
        held = (permission for permissions in roles.values_list("permissions", flat=True) for permission in permissions)
        beyond = lacking_for_user(by, held)
    if beyond:
        raise GrantsMoreThanHeld("This user holds permissions that you do not hold.")
