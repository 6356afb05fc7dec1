"""Rank: a caller neither gives, takes away nor changes what holds permissions beyond its own (assurance.md section 2)."""

from collections.abc import Iterable

from userflow.errors import GrantsMoreThanHeld
from userflow.permissions_catalogue import EVERY_PERMISSION, SELF_PERMISSIONS
from userflow.principals import Principal


def lacking(by: Principal, permissions: Iterable[str]) -> set[str]:
    """Return those of the permissions that are beyond the caller.

    The caller must hold each of the platform's permissions itself. The permissions that a tenant defines mean something
    to the tenant's applications only, and admin users never hold one. An admin user with `roles:write` can bind them to
    any user of the tenant, so they count as held; otherwise a tenant's admins could not manage their own users. A client
    needs each of them as a scope, whatever else it may do: its secret must not open more than its scopes say.
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
