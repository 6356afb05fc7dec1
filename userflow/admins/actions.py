"""Admin users: create, list, edit, deactivate."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils.timezone import now

from identity_platform.api.display_name import is_lookalike
from identity_platform.api.email_addresses import email_key, key_of_spelling
from identity_platform.api.errors import ValidationFailed
from identity_platform.api.pagination import Page, filtered, page_of
from identity_platform.postgresql.row_errors import unique_or
from identity_platform.postgresql.transactions import advisory_lock
from identity_platform.row_checks import RowCheck, no_check
from tenants.entering import lookup
from userflow.accounts.admin_names import username_is
from userflow.accounts.lookups import find_admin_user
from userflow.accounts.models import AdminRole, AdminUser
from userflow.accounts.permissions_catalogue import BUILT_IN_ROLES, OPERATOR, OPERATOR_PERMISSIONS, TENANT_ADMIN
from userflow.accounts.principals import Principal
from userflow.accounts.rank import must_outrank
from userflow.accounts.realms import ADMINS
from userflow.credentials import passwords, tickets
from userflow.email import admin_proofs, undo
from userflow.errors import AdminNameTaken, GrantsMoreThanHeld, LastAdmin, NotYourself, UnknownRole
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.ending import end_sessions, require_active_session
from userflow.signin.proofs import proof_missing, prove_own_change

LAST_ADMIN_LOCK = 7_215_003


def create_admin_user(
    *,
    tenant_id: UUID | None,
    username: str,
    email: str,
    password: str,
    first_name: str = "",
    last_name: str = "",
    roles: Sequence[str] | None = None,
    by: Principal | None = None,
) -> tuple[AdminUser, str | None]:
    """Create an admin user of a tenant, or an operator when `tenant_id` is None. Return it with an enrollment ticket.

    `by` is the caller, None for the command line and for accepted invitations. With None the address counts as verified;
    otherwise a verification mail is sent. Raises AdminNameTaken, WeakPassword, UnknownRole,
    GrantsMoreThanHeld, UnknownTenant, InsufficientAuthentication.
    """
    require_assurance(Action.GRANT_ROLES, by)
    verified = by is None
    least = passwords.SHORTEST
    if tenant_id is not None:
        least = lookup.find_row(tenant_id).effective["password_min_length"]
    granted = grantable_roles(roles or [OPERATOR if tenant_id is None else TENANT_ADMIN], tenant_id, by)
    username = _composed_username(username)
    _reject_foreign_address(username, email)
    reject_reserved_address(email_key(email))
    passwords.check_strength(password, least=least, personal=(username, email, first_name, last_name))
    user = AdminUser(
        tenant_id=tenant_id,
        username=username,
        email=email,
        first_name=first_name,
        last_name=last_name,
        password=passwords.hashed(password),
        email_verified_at=now() if verified else None,
    )
    with transaction.atomic():
        _save(user, force_insert=True)
        if not verified:
            admin_proofs.start_admin_proof(user, email)
        _assign(user, granted)
        ADMINS.record_about(user, "admin_user.created", {"roles": sorted(role.name for role in granted)})
        ticket = tickets.open_enrollment(ADMINS, user, cause="creation")
    return user, ticket


def _composed_username(username: str) -> str:
    """Return the username in composed form (NFC). Raises ValidationFailed if it could pass for another one."""
    composed = unicodedata.normalize("NFC", username)
    if is_lookalike(composed):
        raise ValidationFailed(
            details={"username": ["Send letters of one alphabet, without invisible characters and special forms."]}
        )
    return composed


def _reject_foreign_address(username: str, email: str) -> None:
    """Raise ValidationFailed if the username looks like the address of another user: sign-in accepts either."""
    if "@" in username and key_of_spelling(username) != email_key(email):
        raise ValidationFailed(details={"username": ["A username with an @ must be the user's own e-mail address."]})


def reject_reserved_address(key: str) -> None:
    """Raise AdminNameTaken if an admin user has verified the address."""
    if AdminUser.objects.filter(email_key=key, email_verified_at__isnull=False).exists():
        raise AdminNameTaken


def _save(user: AdminUser, *, force_insert: bool = False, update_fields: list[str] | None = None) -> None:
    with unique_or(AdminNameTaken), transaction.atomic():
        user.save(force_insert=force_insert, update_fields=update_fields)


def grantable_roles(names: Iterable[str], tenant_id: UUID | None, by: Principal | None) -> list[AdminRole]:
    """Return the admin roles with these names, if `by` (None: the command line) may grant them in that tenant.

    Raises UnknownRole (also an operators' role for a tenant), GrantsMoreThanHeld.
    """
    distinct_names = set(names)
    roles = list(AdminRole.objects.filter(name__in=distinct_names))
    if len(roles) != len(distinct_names):
        missing = sorted(distinct_names - {role.name for role in roles})
        raise UnknownRole(details={"roles": [f"Role {name!r} does not exist." for name in missing]})
    permissions = {permission for role in roles for permission in role.permissions}
    if tenant_id is not None and permissions & set(OPERATOR_PERMISSIONS):
        raise UnknownRole(details={"roles": ["This role is for operators only."]})
    if by is not None and not permissions <= by.permissions:
        raise GrantsMoreThanHeld
    return roles


def hold_roles(roles: Sequence[AdminRole]) -> None:
    """Lock custom roles, so that they stay until the commit. Raises UnknownRole for one that was deleted since it was found."""
    custom = [role.pk for role in roles if role.name not in BUILT_IN_ROLES]
    locked = AdminRole.objects.filter(pk__in=custom).order_by("pk").select_for_update(no_key=True)
    if custom and len(locked) < len(custom):
        raise UnknownRole(details={"roles": ["A role was deleted meanwhile."]})


def _assign(user: AdminUser, roles: Sequence[AdminRole]) -> None:
    hold_roles(roles)
    user.roles.set(roles)


def list_admin_users(
    *, tenant_id: UUID | None, page: int, limit: int, username: str | None = None, email: str | None = None
) -> Page:
    """Return admin users of a tenant, newest first; of the whole platform if None (operators only).

    `username` matches exactly, `email` a part of the address, both case-insensitively.
    """
    users = filtered(AdminUser.objects.prefetch_related("roles"), tenant_id=tenant_id)
    if username is not None:
        users = users.filter(username_is(username))
    if email is not None:
        users = users.filter(email_key__contains=email.lower())
    return page_of(users.order_by("-created_at", "id"), page, limit)


def update_admin_user(
    *,
    user_id: UUID,
    by: Principal,
    changes: dict[str, Any],
    proof: Mapping[str, object] | None = None,
    check: RowCheck = no_check,
) -> AdminUser:
    """Change `username`, `email`, `first_name`, `last_name`, `roles`: fields that are present. `proof` is for the caller's
    own address.

    Raises UnknownUser, AdminNameTaken, TooManyFromAddress (too many new addresses), UnknownRole,
    GrantsMoreThanHeld (also for a user who holds more than the caller does), LastAdmin (roles that would leave a tenant, or
    the platform, without an admin), InsufficientAuthentication (roles or an address), and the errors of `check_proof`
    (one's own address).
    """
    changes = dict(changes)
    is_own = by.is_admin and by.id == user_id
    proven = is_own and changes.get("email", by.user["email"]) != by.user["email"]
    if proven:
        require_assurance(Action.CHANGE_OWN_EMAIL, by)
        if email_key(changes["email"]) != email_key(by.user["email"]):
            admin_proofs.limit_changes(by.id, counts=False)
        prove_own_change(Action.CHANGE_OWN_EMAIL, principal=by, proof=proof)
    roles = changes.pop("roles", None)
    with transaction.atomic():
        user = find_admin_user(user_id=user_id, within=by.tenant_id, lock=True)
        check()
        if roles is not None and set(roles) != {role.name for role in user.roles.all()}:
            require_assurance(Action.GRANT_ROLES, by)
        if not is_own and changes.get("email", user.email) != user.email:
            require_assurance(Action.CHANGE_EMAIL_OF_OTHERS, by)
        must_outrank(by, user)
        granted = None if roles is None else grantable_roles(roles, user.tenant_id, by)
        if changes.get("username", user.username) != user.username:
            changes["username"] = _composed_username(changes["username"])
        username, email = changes.get("username", user.username), changes.get("email", user.email)
        _reject_foreign_address(username, email)
        if is_own and email != user.email:
            if not proven:  # the address has changed since the token was checked
                raise proof_missing()
            require_active_session(ADMINS, by)
        if granted is not None and user.active and _managing_role(user) not in {role.name for role in granted}:
            _require_other_admin(user)
        changed_fields = sorted([*changes, *(["roles"] if roles is not None else [])])
        _apply(user, changes, keep=by.session_id if is_own else None)
        if granted is not None:
            _assign(user, granted)
        ADMINS.record_about(user, "admin_user.updated", {"changed": changed_fields})
    return find_admin_user(user_id=user_id, within=by.tenant_id)


def _apply(user: AdminUser, changes: dict[str, Any], *, keep: UUID | None) -> None:
    """Store changes of a locked user; `keep` is the session that goes on when the address changes."""
    address_changes = email_key(changes.get("email", user.email)) != user.email_key
    if address_changes:
        _change_address(user, changes, keep=keep)
    for name, value in changes.items():
        setattr(user, name, value)
    # Only these fields: a concurrent change of password, factors or activity must not be undone.
    _save(user, update_fields=[*changes, "email_key", "updated_at"])
    if address_changes:
        # Password reset links were sent to the old address.
        tickets.end_tickets(ADMINS, user.pk, purposes=[tickets.PASSWORD_RESET])
    if "email_verified_at" in changes:
        end_sessions(ADMINS, user_id=user.pk, keep=keep, reason="email_changed")


def _change_address(user: AdminUser, changes: dict[str, Any], *, keep: UUID | None) -> None:
    """Apply a new address in `changes` now, or keep it pending. Raises AdminNameTaken, TooManyFromAddress (too many changes).

    It applies at once, unverified. For a user with a factor it applies only once it is verified: what a factor protects
    must not pass to an unverified address. The old address gets a link that undoes the change.
    """
    new_email = changes["email"]
    reject_reserved_address(email_key(new_email))
    admin_proofs.limit_changes(user.pk)
    pending = bool(user.mfa_methods)
    undo.offer_undo(ADMINS, user, lookup.find(user.tenant_id) if user.tenant_id else None, pending=pending)
    admin_proofs.start_admin_proof(user, new_email, keep=keep)
    if pending:
        del changes["email"]
    else:
        changes["email_verified_at"] = None


def set_admin_active(*, user_id: UUID, active: bool, by: Principal) -> AdminUser:
    """Activate or deactivate an admin user. Deactivation ends all sessions.

    Raises UnknownUser, NotYourself, LastAdmin (the last active admin of a tenant, the last operator),
    GrantsMoreThanHeld (a user who holds more than the caller), InsufficientAuthentication (to deactivate).
    """
    if not active:
        require_assurance(Action.END_SESSIONS_OF_OTHERS, by)
    with transaction.atomic():
        # Lock the row before the advisory lock, as an edit does: the opposite order could deadlock.
        user = find_admin_user(user_id=user_id, within=by.tenant_id, lock=True)
        if user.pk == by.id and not active:
            raise NotYourself
        must_outrank(by, user)
        if not active:
            _require_other_admin(user)
        user.active = active
        user.save(update_fields=["active", "updated_at"])
        if not active:
            end_sessions(ADMINS, user_id=user.pk, reason="deactivated")
            tickets.end_tickets(ADMINS, user.pk)
        ADMINS.record_about(user, "admin_user.activated" if active else "admin_user.deactivated")
    return user


def _require_other_admin(user: AdminUser) -> None:
    """Raise LastAdmin for the last one. Serialized per tenant: two admins must not deactivate each other concurrently."""
    advisory_lock(ADMINS.alias, LAST_ADMIN_LOCK % 2**31, str(user.tenant_id))
    admins = AdminUser.objects.filter(tenant=user.tenant, active=True, roles__name=_managing_role(user))
    if admins.filter(pk=user.pk).exists() and not admins.exclude(pk=user.pk).exists():
        raise LastAdmin


def _managing_role(user: AdminUser) -> str:
    """Return the role that can create other admins in the user's tenant or platform."""
    return TENANT_ADMIN if user.tenant_id else OPERATOR


def is_taken(*, username: str, email: str) -> bool:
    """Whether an admin user has this username, or has verified this address."""
    verified = AdminUser.objects.filter(email_key=email_key(email), email_verified_at__isnull=False)
    return AdminUser.objects.filter(username_is(username)).exists() or verified.exists()
