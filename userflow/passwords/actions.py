"""Change a password with the current one, or reset it with a link sent by mail."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.utils.timezone import now

from identity_platform.api import ratelimit
from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ApiError, NotAllowed
from identity_platform.audit.origin import current_origin
from identity_platform.crypto import hash_token
from identity_platform.postgresql.row_errors import first_or, unique_or
from tenants import operating_modes
from tenants.entering import lookup
from tenants.entering.context import current_tenant, in_tenant
from tenants.entering.target import TENANT_ALIAS
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from tenants.states import Purpose
from userflow.accounts.admin_names import admins_named
from userflow.accounts.models import Account, AdminUser, EndUser, TenantClient
from userflow.accounts.principals import CLIENT, Principal
from userflow.accounts.rank import must_outrank
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.sources import MAY_RESET_PASSWORD, is_foreign
from userflow.credentials import attempts, passwords, pending_registrations, tickets
from userflow.credentials import email_verification as proofs
from userflow.credentials.models import PendingRegistration
from userflow.email.ownership import verify_by_reset
from userflow.errors import (
    EmailProofInvalid,
    EmailTaken,
    NoPasswordHere,
    NotSignedInByTicket,
    ResetTokenInvalid,
    TooManyFromAddress,
    UnknownUser,
    UserDeactivated,
)
from userflow.events.outbox import publish
from userflow.mail.budgets import limit_mails
from userflow.mail.queue import queue_mail, queue_request
from userflow.mail.rendering import PLATFORM, link_facts
from userflow.mailed_tokens import NotAToken, place_of
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.ending import end_sessions, require_active_session
from userflow.sessions.issue import realm_of
from userflow.sessions.permissions import require
from userflow.signin.proofs import check_proof, wrong_password

MOST_OF_ONE_ADDRESS = 5
MINUTES = int(tickets.LIFETIME[tickets.PASSWORD_RESET].total_seconds() // 60)


def change_password(*, principal: Principal, proof: Mapping[str, object], new_password: str) -> int:
    """Replace the caller's password; every other session ends. Return the number of sessions that ended.

    Raises InsufficientAuthentication, the errors of `check_proof`, WeakPassword, NoPasswordHere, NotAllowed (a client),
    HashersBusy.
    """
    if principal.kind == CLIENT:
        raise NotAllowed("A client has no password. Rotate its secret at /clientms.")
    require_assurance(Action.CHANGE_OWN_PASSWORD, principal)
    realm, tenant_id = realm_of(principal.kind), principal.tenant_id
    with realm.entered(tenant_id) as entered:
        tenant = entered or (lookup.find(tenant_id) if tenant_id else None)
        user = realm.users._default_manager.filter(pk=principal.id, active=True).first()
        if user is None or not user.password or is_foreign(user):
            raise NoPasswordHere
        # Before the proof, which may use up a one-time code.
        _check(user, new_password, tenant, member="new_password")
        check_proof(principal=principal, proof=proof)
        encoded, present = passwords.hashed(new_password), user.password
        with realm.atomic():
            keep = principal.session_id
            ended = _set(realm, user, encoded, tenant, keep=keep, reason="password_changed", present=present)
            require_active_session(realm, principal)
            realm.record("password.changed", target=("user", user.pk), tenant_id=tenant_id)
    return ended


def set_admin_password(*, username: str, password: str) -> int:
    """Set an admin user's password from the command line, by username or address. Return the number of ended sessions.

    Raises UnknownUser, WeakPassword, HashersBusy.
    """
    user = first_or(admins_named(username), UnknownUser)
    tenant = lookup.find(user.tenant_id) if user.tenant_id else None
    _check(user, password, tenant, member="password")
    encoded = passwords.hashed(password)
    with ADMINS.atomic():
        ended = _set(ADMINS, user, encoded, tenant, keep=None, reason="password_set")
        _unlock(ADMINS, user.pk)
        ADMINS.record("password.set", target=("user", user.pk), tenant_id=user.tenant_id)
    return ended


def ask_for_admin_reset(*, email: str) -> None:
    """Mail an admin user a link to set a new password.

    Neither the response nor its timing reveals whether the user exists: the user is looked up after the response. Raises
    TooManyFromAddress (also for an unknown address), ReadOnlyMode.
    """
    operating_modes.check_platform()
    key = email_key(email)
    _limit(ADMINS, "", key)
    queue_request("admin_reset", address=key, values={}, after="default")


def mail_reset_to_admins(key: str, values: Mapping[str, object]) -> None:
    """Do what `ask_for_admin_reset` asked for, in a transaction of the global database."""
    for user in _admins_at(key):
        # An unavailable tenant sends no mail.
        with suppress(ApiError):
            tenant = lookup.find_row(user.tenant_id) if user.tenant_id else None
            if tenant is not None:
                tenant.check(Purpose.READ)
            _send_link(ADMINS, user, tenant)


def _admins_at(key: str) -> list[AdminUser]:
    """Return the active admin users with this address: the one who has verified it, else all who use it.

    An unverified address must not lock out other users, so each of them gets a link with their username.
    """
    users = list(AdminUser.objects.filter(email_key=key, active=True).order_by("created_at"))
    verified = [user for user in users if user.email_verified_at is not None]
    return verified or users[:MOST_OF_ONE_ADDRESS]


def ask_for_end_user_reset(*, email: str, client_id: UUID | None = None, tenant_id: UUID | None = None) -> None:
    """Mail an end user a link to set a new password; `tenant_id` or `client_id` identifies the tenant.

    The response reveals nothing, as in `ask_for_admin_reset`, also about tenants and clients. Raises TooManyFromAddress,
    ReadOnlyMode.
    """
    operating_modes.check_platform()
    key = email_key(email)
    try:
        _limit(END_USERS, str(tenant_id or client_id), key)
    except TooManyFromAddress:
        # Other callers must not use up what the user needs: the network of a recent sign-in has a limit of its own.
        network = _known_network(_tenant_of(tenant_id, client_id), key)
        if network is None:
            raise
        _limit(END_USERS, f"{tenant_id or client_id} {network}", key)

    resolved_tenant_id = _tenant_of(tenant_id, client_id)
    if resolved_tenant_id is None:
        return
    # An unknown or unavailable tenant sends no mail, and the response stays the same.
    with suppress(ApiError), in_tenant(resolved_tenant_id, Purpose.WRITE):
        queue_request("end_user_reset", address=key, values={}, after=TENANT_ALIAS)


def mail_reset_to_end_user(key: str, values: Mapping[str, object]) -> None:
    """Do what `ask_for_end_user_reset` asked for, in the entered tenant's transaction."""
    tenant = current_tenant()
    if not tenant.allows(Purpose.WRITE):
        return
    user = EndUser.objects.filter(MAY_RESET_PASSWORD, email_key=key, active=True).first()
    if user is not None:
        _send_link(END_USERS, user, tenant)
    elif not EndUser.objects.filter(email_key=key).exists():
        _send_link_to_pending(key, tenant)


def _tenant_of(tenant_id: UUID | None, client_id: UUID | None) -> UUID | None:
    """Return the tenant that a request names by its id, by a client or by both; None if it names none."""
    if client_id is None:
        return tenant_id
    of_client = lookup.tenant_of_client(client_id)
    if of_client is None or tenant_id not in (None, of_client):
        return None
    with suppress(ApiError), in_tenant(of_client, Purpose.INSPECT):
        return of_client if TenantClient.objects.filter(pk=client_id, active=True).exists() else None
    return None


def _known_network(tenant_id: UUID | None, key: str) -> str | None:
    """Return the caller's network if the user with this address has recently signed in from it."""
    if tenant_id is None:
        return None
    with suppress(ApiError), in_tenant(tenant_id, Purpose.SIGN_IN):
        user_id = EndUser.objects.filter(email_key=key).values_list("pk", flat=True).first()
        if user_id is not None and attempts.is_known_network(END_USERS, user_id):
            return attempts.caller_network()
    return None


def _send_link_to_pending(key: str, tenant: lookup.TenantContext) -> None:
    """Mail a link to an address that has no user but registrations that wait: following it makes the user.

    So the owner of the address comes in, although others have registered it.
    """
    network = f"{tenant.tenant_id} {key} {attempts.caller_network()}"
    most, seconds = settings.LIMITS["forgot"]
    if ratelimit.count(group="forgot", key=hash_token(network).hex(), limit=most, period=seconds).limited:
        return
    issued = pending_registrations.start_reset(key, tenant)
    if issued is not None:
        user, token = issued
        _mail_link(END_USERS, user, tenant, token, reserved=False)


def send_password_reset(*, tenant_id: UUID, user_id: UUID, by: Principal) -> EndUser:
    """Mail an end user a link to set a new password, at the request of an admin, and return the user.

    The admin never sees the link. It has a limit of its own, so that unknown callers who request links for the user
    cannot use it up. Raises InsufficientScope, UnknownUser, UserDeactivated, NoPasswordHere, GrantsMoreThanHeld (a user who
    holds more than the caller), TooManyFromAddress, TenantSuspended, TenantBusy.
    """
    require(by, "endusers:write")
    with in_tenant(tenant_id) as tenant, END_USERS.atomic():
        # A change of the address waits: it ends the link, which must not be valid at the former address.
        user = first_or(EndUser.objects.select_for_update(no_key=True).filter(pk=user_id), UnknownUser)
        must_outrank(by, user)
        if not user.active:
            raise UserDeactivated
        if not EndUser.objects.filter(MAY_RESET_PASSWORD, pk=user_id).exists():
            raise NoPasswordHere
        limit_mails("reset_by_admin", f"{tenant_id} {user_id}", "Too many mails for this user.", limits="forgot")
        _mail_link(END_USERS, user, tenant, _issue_link(END_USERS, user, tenant), reserved=True)
    return user


def _limit(realm: Realm, scope: str, key: str) -> None:
    attempts.limit_address("signin")
    limit_mails("forgot", hash_token(f"{realm.name} {scope} {key}").hex(), "Too many mails for this address.")


def _send_link(realm: Realm, user: Account, tenant: lookup.TenantContext | None) -> None:
    tenant_id = tenant.tenant_id if tenant else None
    most, seconds = settings.LIMITS["forgot"]
    # Limit by user as well: a tenant can be identified by several clients. The key contains the tenant because an import
    # may give the same id to a user of another tenant.
    known = attempts.is_known_network(realm, user.pk)
    key = f"{realm.name} {tenant_id} {user.pk}{' known' if known else ''}"
    if ratelimit.count(group="forgot", key=key, limit=most, period=seconds).limited:
        return
    _mail_link(realm, user, tenant, _issue_link(realm, user, tenant), reserved=known)


def _issue_link(realm: Realm, user: Account, tenant: lookup.TenantContext | None) -> str:
    token = tickets.issue_ticket(realm, user, tickets.PASSWORD_RESET)
    realm.record("password.reset_asked", target=("user", user.pk), tenant_id=tenant.tenant_id if tenant else None)
    # The token names the tenant whose database has it.
    home = realm.home(tenant)
    return f"{home.tenant_id.hex}.{token}" if home else token


def _mail_link(realm: Realm, user: Account, tenant: lookup.TenantContext | None, token: str, *, reserved: bool) -> None:
    # A tenant's own page must not receive the tokens of admin users.
    home = realm.home(tenant)
    page = home.effective["password_reset_url"] if home else settings.PASSWORD_RESET_URL
    queue_mail(
        "password_reset",
        to=user.email,
        facts={
            **_facts(tenant),
            **link_facts(page, token),
            "minutes": MINUTES,
            # Chosen by an admin; end users choose their own names and could write a message there.
            "username": user.username if isinstance(user, AdminUser) else "",
        },
        after=realm.alias,
        language=user.own_language,
        reserved=reserved,
        limited=False,
        expires_at=now() + timedelta(minutes=MINUTES),
    )


class PasswordReset(NamedTuple):
    """Whose password was reset, and how many sessions ended."""

    email: str
    sessions_ended: int


def reset_admin_password(*, token: str, password: str) -> PasswordReset:
    """Set a new password with the token of a mail.

    Raises ResetTokenInvalid (unknown, used, expired, of another realm, or of a suspended tenant),
    WeakPassword (the token stays valid), TooManyFromAddress, HashersBusy.
    """
    return _reset(ADMINS, token, password)


def reset_end_user_password(*, token: str, password: str, tenant_id: UUID | None = None) -> PasswordReset:
    """Set an end user's password, as in `reset_admin_password`; `tenant_id`, if given, must be the token's tenant."""
    try:
        token_tenant_id = place_of(token)
        if token_tenant_id is None or tenant_id not in (None, token_tenant_id):
            raise NotAToken
    except NotAToken as problem:
        attempts.count_wrong_secret()
        raise ResetTokenInvalid from problem
    try:
        with in_tenant(token_tenant_id, Purpose.WRITE) as tenant:
            registration = pending_registrations.find_reset(token)
            if registration is not None:
                return _complete_registration(registration, password, tenant)
            return _reset(END_USERS, token.partition(".")[2], password, tenant)
    except (UnknownTenant, TenantMismatch) as problem:
        raise ResetTokenInvalid from problem


def _reset(realm: Realm, token: str, password: str, tenant: lookup.TenantContext | None = None) -> PasswordReset:
    try:
        ticket = tickets.find_ticket(realm, token, tickets.PASSWORD_RESET)
    except NotSignedInByTicket as problem:
        attempts.count_wrong_secret()
        raise ResetTokenInvalid from problem
    user = ticket.user
    if isinstance(user, AdminUser) and user.tenant_id:
        try:
            tenant = lookup.find_row(user.tenant_id)
            tenant.check(Purpose.READ)
        except (UnknownTenant, TenantSuspended, TenantBusy) as problem:
            # The same response as for an invalid token. The token stays valid until it expires.
            attempts.count_wrong_secret()
            raise ResetTokenInvalid from problem
    tenant_id = tenant.tenant_id if tenant else None
    _check(user, password, tenant, member="password")
    encoded = passwords.hashed(password)
    try:
        with realm.atomic():
            # Lock the user before tickets, as everywhere: two links used concurrently could deadlock.
            locked = realm.users._default_manager.select_for_update(no_key=True).filter(pk=user.pk).first()
            tickets.consume_ticket(realm, ticket)
            if locked is None:
                raise ResetTokenInvalid
            ended = _set(realm, user, encoded, tenant, keep=None, reason="password_reset")
            verify_by_reset(realm, locked)
            _unlock(realm, user.pk)
            realm.record("password.reset", target=("user", user.pk), tenant_id=tenant_id)
    except NotSignedInByTicket as problem:
        raise ResetTokenInvalid from problem
    return PasswordReset(locked.email, ended)


def _complete_registration(row: PendingRegistration, password: str, tenant: lookup.TenantContext) -> PasswordReset:
    """Make the user of an address that had only registrations that wait. No session can have existed."""
    user = pending_registrations.user_of(row)
    _check(user, password, tenant, member="password")
    encoded = passwords.hashed(password)
    try:
        with unique_or(EmailTaken), END_USERS.atomic():
            pending_registrations.complete(row, password=encoded)
            END_USERS.record("password.reset", target=("user", user.pk), tenant_id=tenant.tenant_id)
    except (EmailProofInvalid, EmailTaken) as problem:
        # Used, or the address has a user since: the response of every link that is no longer valid.
        raise ResetTokenInvalid from problem
    return PasswordReset(user.email, 0)


def _unlock(realm: Realm, user_id: UUID) -> None:
    for caller in (attempts.UNKNOWN_NETWORK, attempts.KNOWN_NETWORK, attempts.SIGNED_IN):
        attempts.clear(realm, user_id, factor=attempts.PASSWORD, caller=caller)


def _check(user: Account, password: str, tenant: lookup.TenantContext | None, *, member: str) -> None:
    least = tenant.effective["password_min_length"] if tenant else passwords.SHORTEST
    passwords.check_strength(password, least=least, personal=(user.email, *user.names), field=member)


def _set(
    realm: Realm,
    user: Account,
    encoded: str,
    tenant: lookup.TenantContext | None,
    *,
    keep: UUID | None,
    reason: str,
    present: str | None = None,
) -> int:
    """Store the hash, end sessions and tickets, and notify the user. Call it in the realm's transaction.

    `present` is the hash that was compared; WrongCurrentPassword if it has changed since. Hashing takes time, and a caller
    who knows the old password must not undo a concurrent reset. Call it before clearing attempt counters: a sign-in locks
    the user first and the counter second, and another order could deadlock.
    """
    stored = realm.users._default_manager.filter(pk=user.pk)
    if present is not None:
        stored = stored.filter(password=present)
    if not stored.update(password=encoded, password_changed_at=now(), updated_at=now()) and present is not None:
        raise wrong_password()
    ended = end_sessions(realm, user_id=user.pk, keep=keep, reason=reason)
    tickets.end_tickets(realm, user.pk)
    if realm is END_USERS:
        # A previous session may have requested a change of address; the links of that change must end.
        proofs.give_up_changes([user.pk])
        publish(f"end_user.{reason}", {"user_id": user.pk, "sessions_ended": ended})
    facts = {**_facts(tenant), "at": now(), "address": current_origin().address}
    realm.notify(user, "password_changed", facts)
    return ended


def _facts(tenant: lookup.TenantContext | None) -> dict[str, object]:
    issuer = tenant.effective["issuer_name"] if tenant else PLATFORM
    # Not the user's name: an attacker who registers another person's address could write a message there.
    return {"issuer": issuer}
