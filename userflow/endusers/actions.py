"""End users: register, list, read, update, activate, deactivate, erase, database mapping."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import orjson
from django.apps import apps
from django.db import IntegrityError
from django.db.models import Model, Q

from identity_platform.api.cursors import Position, read_cursor, write_cursor
from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ApiError, Unavailable
from identity_platform.api.pagination import Page
from identity_platform.api.response_time import rounding
from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.row_errors import first_or, unique_or
from identity_platform.postgresql.transactions import advisory_lock
from identity_platform.row_checks import RowCheck, no_check
from tenants import keys
from tenants.entering import lookup
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.models import TenantDatabase
from tenants.states import Purpose
from userflow.accounts.event_payloads import person
from userflow.accounts.models import DEFAULT_ROLE, LOCAL, EndUser, Role, RoleBinding, TenantClient, end_user_erasing
from userflow.accounts.principals import END_USER, Principal
from userflow.accounts.rank import must_outrank
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.accounts.sources import is_local
from userflow.credentials import attempts, passwords, pending_registrations, tickets, unused_registrations
from userflow.credentials import email_verification as proofs
from userflow.credentials.models import EmailProof
from userflow.email import undo
from userflow.endusers import queries
from userflow.endusers.list_reads import record_list_read
from userflow.endusers.taken import tell_owner
from userflow.errors import (
    EmailTaken,
    ExternalIdTaken,
    ForeignProvider,
    LastActiveUser,
    RegistrationClosed,
    UnknownClient,
    UnknownUser,
    WeakPassword,
)
from userflow.events import logouts, outbox
from userflow.events.outbox import publish
from userflow.mail.queue import forget_mails
from userflow.sessions.assurance import Action, reject_third_party, require_assurance
from userflow.sessions.ending import end_sessions, require_active_session
from userflow.sessions.permissions import editing_users, require
from userflow.signals import end_user_activity_set
from userflow.signin.proofs import proof_missing, prove_own_change

# What applications rely on: users read it and never write it.
NOT_BY_USERS: Final = frozenset({"app_metadata", "external_id"})
EXTERNAL_ID_TAKEN: Final[dict[str, type[ApiError]]] = {"end_user_external_id_unique": ExternalIdTaken}
ERASE_LOCK = 7_215_004
ERASE_ATTEMPTS = 3


def register_end_user(
    *,
    tenant_id: UUID,
    client_id: UUID,
    email: str,
    by: Principal | None = None,
    password: str | None = None,
    name: str = "",
    provider: str = LOCAL,
    metadata: dict[str, object] | None = None,
    app_metadata: dict[str, object] | None = None,
    external_id: str | None = None,
) -> tuple[EndUser, str | None]:
    """Store a new end user with the default associations. Return the user and an enrollment ticket.

    A mail to verify the address is always sent. Where the tenant requires a verified address, a registration waits for it by
    itself (`pending_registrations`): the user is not stored yet, there is no ticket, and a taken address gets the same
    response. `by` is the caller, None without a token. A caller with `endusers:write` may register users where the client
    takes no self-registration, and users of another provider than `local`, who replace an unused registration if they have no
    password; see `unused_registrations`. Metadata and external id of other callers are ignored.

    Raises UnknownTenant, UnknownClient, RegistrationClosed, ForeignProvider, InsufficientScope, EmailTaken,
    ExternalIdTaken, WeakPassword, TenantSuspended, TenantBusy, TooManyFromAddress.
    """
    attempts.limit_address("registration")
    key = email_key(email)
    with rounding() as time_taken, in_tenant(tenant_id, Purpose.WRITE) as tenant:
        client = first_or(TenantClient.objects.filter(pk=client_id, active=True), UnknownClient)
        is_open = client.self_registration and tenant.effective["self_registration"]
        entitled = _may_register(by, provider, is_open=is_open)
        if password is not None:
            passwords.check_strength(password, least=tenant.effective["password_min_length"], personal=(email, name))
        elif is_local(provider):
            raise WeakPassword(
                "Send a password.", details={"password": ["A password is required for the provider local."]}
            )
        if password is not None and not entitled and proofs.is_required(tenant):
            time_taken.rounds = True
            return _register_pending(tenant, email=email, name=name, client_id=client_id, password=password), None
        # A caller who creates a user with a password knows it: it must not take the place of the owner's own.
        replaces = entitled and password is None
        _reject_taken(key, replaces=replaces)
        if entitled and not replaces and pending_registrations.wait_for(key):
            # The mail to the owner, who may have registered, would verify the caller's password.
            raise EmailTaken("A registration of this address waits for its verification. Invite the user instead.")
        user = EndUser(
            email=email,
            email_key=key,
            name=name,
            provider=provider,
            client_id=client_id,
            password=passwords.hashed(password) if password is not None else "",
            self_registered=not entitled,
        )
        if entitled:
            user.metadata, user.app_metadata, user.external_id = metadata or {}, app_metadata or {}, external_id
        with unique_or(EmailTaken, **EXTERNAL_ID_TAKEN), tenant_atomic():
            if replaces:
                unused_registrations.release_addresses([key], to="registration")
            return user, _store(user, tenant)


def _register_pending(
    tenant: lookup.TenantContext, *, email: str, name: str, client_id: UUID, password: str
) -> EndUser:
    """Store a registration that waits for its verification; a user who keeps the address is told by mail instead.

    The steps are the same either way. Raises TooManyFromAddress, HashersBusy.
    """
    key = email_key(email)
    pending_registrations.limit_waiting(key)
    encoded = pending_registrations.hash_password(key, password, tenant)
    holders = EndUser.objects.filter(Q(email_key=key) | unused_registrations.reserving(key))
    holders = holders.exclude(pk__in=unused_registrations.giving_way(key).values("pk"))
    with tenant_atomic():
        holder = holders.first()
        user = pending_registrations.start(
            email=email, name=name, client_id=client_id, password=encoded, tenant=tenant, mails=holder is None
        )
        if holder is not None and holder.email_key == key:
            tell_owner(holder, tenant)
    return user


def _store(user: EndUser, tenant: lookup.TenantContext) -> str | None:
    """Store a registration with the default role and send the verification mail. Return an enrollment ticket."""
    user.save(force_insert=True)
    RoleBinding.objects.bulk_create(
        RoleBinding(user=user, role=role) for role in Role.objects.filter(name=DEFAULT_ROLE)
    )
    ticket = tickets.open_enrollment(END_USERS, user, cause="registration")
    proofs.start_proof(user, user.email, user.email_key, tenant)
    details = {"client_id": str(user.client_id)}
    record_for_tenant("end_user.registered", target=("end_user", user.pk), details=details)
    publish("end_user.created", person(user, via="registration"))
    return ticket


def _reject_taken(key: str, *, replaces: bool) -> None:
    """Raise EmailTaken if a user has the address or can still take it back.

    An unused registration gives it up to a user without a password whom an admin creates, not to another password. This is
    cheaper than a hash; the unique index decides races.
    """
    holders = EndUser.objects.filter(Q(email_key=key) | unused_registrations.reserving(key))
    if (holders.exclude(EndUser.YIELDS) if replaces else holders).exists():
        raise EmailTaken


def _may_register(by: Principal | None, provider: str, *, is_open: bool) -> bool:
    """Return whether the caller holds `endusers:write`. Raises if the registration needs it and the caller lacks it."""
    entitled = by is not None and by.kind != END_USER and by.may("endusers:write")
    if entitled or (is_open and is_local(provider)):
        return entitled
    if by is not None:
        require(by, "endusers:write")
    raise RegistrationClosed if not is_open else ForeignProvider


def list_end_users(
    *,
    tenant_id: UUID,
    page: int,
    limit: int,
    filters: dict[str, object],
    cursor: str | None = None,
    purpose: Purpose = Purpose.READ,
) -> Page:
    """Return one page of a tenant's end users, newest first: the one that a cursor names, or else by number.

    `rows` is ready JSON. A page by cursor costs the same anywhere in the list, and users who are added meanwhile do not move
    it.

    Filters: `active` (bool), `client_id` (UUID), `email` and `name` (a part, case-insensitive), `provider` (exact,
    case-insensitive), `external_id` (exact), `project_id` (of the users' clients). `purpose` is what the caller enters the
    tenant for. Raises CursorInvalid, UnknownTenant, TenantSuspended, TenantBusy.
    """
    all_filters = filters
    list_key = orjson.dumps(["end users", tenant_id, sorted(all_filters.items())])
    position = read_cursor(cursor, key=keys.platform_key(), list_id=list_key) if cursor is not None else None
    filters = dict(filters)
    project = filters.pop("project_id", None)
    with in_tenant(tenant_id, purpose):
        if project is not None:
            filters["clients"] = list(TenantClient.objects.filter(project_id=project).values_list("id", flat=True))
        record_list_read(all_filters)
        if position is None:
            part = queries.page_of_end_users(filters=filters, page=page, limit=limit)
        else:
            page = position.page
            part = queries.page_behind(
                filters=filters, created_at=position.created_at, user_id=position.id, limit=limit
            )
    following = None
    if part.last is not None:
        following = write_cursor(Position(*part.last, page + 1), key=keys.platform_key(), list_id=list_key)
    return Page(part.rows, page, limit, part.total, following)


def read_end_user(*, tenant_id: UUID, user_id: UUID, purpose: Purpose = Purpose.READ) -> orjson.Fragment:
    """Return one end user with metadata, factors, roles and groups, as ready JSON. Raises UnknownUser."""
    with in_tenant(tenant_id, purpose):
        end_user = queries.one_end_user(user_id)
    if end_user is None:
        raise UnknownUser
    return end_user


def update_end_user(
    *,
    tenant_id: UUID,
    user_id: UUID,
    by: Principal,
    changes: dict[str, Any],
    proof: Mapping[str, object] | None = None,
    check: RowCheck = no_check,
) -> EndUser:
    """Change `name`, `email`, `language` ("" for none), `metadata`, `app_metadata` (both replaced as a whole) and
    `external_id` (None for none), if given.

    The last two of the caller's own record are ignored (`NOT_BY_USERS`). `proof` is for the caller's own address.

    A new address may apply only once it is verified (see `_change_address`); the returned user then still has the old
    one. The old address gets a link that undoes the change. Raises UnknownUser, EmailTaken, ExternalIdTaken,
    TooManyFromAddress (too many new addresses), GrantsMoreThanHeld (another user, who holds more than the caller),
    InsufficientAuthentication (an address), and the errors of `check_proof` (the caller's own address).
    """
    changes = dict(changes)
    # Compare the kind too: an import may give an end user the id of an admin.
    is_own = by.kind == END_USER and by.id == user_id
    if is_own:
        reject_third_party(by)
        changes = {field: value for field, value in changes.items() if field not in NOT_BY_USERS}
    proven = is_own and changes.get("email", by.user["email"]) != by.user["email"]
    if proven:
        require_assurance(Action.CHANGE_OWN_EMAIL, by)
        _reject_in_vain(tenant_id, user_id, changes["email"])
        prove_own_change(Action.CHANGE_OWN_EMAIL, principal=by, proof=proof)
    with (
        in_tenant(tenant_id, editing_users(by)) as tenant,
        unique_or(EmailTaken, **EXTERNAL_ID_TAKEN),
        tenant_atomic(),
    ):
        user = _locked(user_id)
        check()
        address_changes = changes.get("email", user.email) != user.email
        if is_own and address_changes:
            if not proven:  # the address has changed since the token was checked
                raise proof_missing()
            require_active_session(END_USERS, by)
        elif not is_own:
            if address_changes:
                require_assurance(Action.CHANGE_EMAIL_OF_OTHERS, by)
            must_outrank(by, user)
        _apply(user, changes, tenant, is_own=is_own, keep=by.session_id if is_own else None)
    return user


def _reject_in_vain(tenant_id: UUID, user_id: UUID, email: str) -> None:
    """Raise EmailTaken or TooManyFromAddress before a proof is used up for a change that fails; the change decides races.

    Limited like registrations, which tell the same: nothing, where the tenant requires verified addresses.
    """
    attempts.limit_address("registration")
    with in_tenant(tenant_id, Purpose.WRITE) as tenant:
        user = first_or(EndUser.objects.filter(pk=user_id), UnknownUser)
        key = email_key(email)
        if key == user.email_key:
            return
        if _is_held(key, user, pending=_must_wait(user, tenant)) and not proofs.is_required(tenant):
            raise EmailTaken
        proofs.limit_changes(user.pk, counts=False)


def _locked(user_id: UUID) -> EndUser:
    return first_or(EndUser.objects.select_for_update().filter(pk=user_id), UnknownUser)


def _apply(
    user: EndUser, changes: dict[str, Any], tenant: lookup.TenantContext, *, is_own: bool, keep: UUID | None
) -> None:
    """Store changes of a locked user, own or by others; `keep` is the session that goes on when the address changes."""
    changed_fields, old_key = sorted(changes), user.email_key
    if "email" in changes:
        _change_address(user, changes, tenant, keep=keep, is_own=is_own)
    for field, value in changes.items():
        setattr(user, field, value)
    user.email_key = email_key(user.email)
    user.save(update_fields=[*changes, "email_key", "updated_at"])
    if "email" in changes:
        tickets.end_tickets(END_USERS, user.pk, purposes=tickets.OF_ADDRESS)
    if user.email_key != old_key:
        proofs.start_proof(user, user.email, user.email_key, tenant)
        end_sessions(END_USERS, user_id=user.pk, keep=keep, reason="email_changed")
    record_for_tenant("end_user.updated", target=("end_user", user.pk), details={"changed": changed_fields})
    # An address that waits for verification has changed nothing yet.
    if changed := sorted(changes.keys() & {"name", "email", "language", "metadata", *NOT_BY_USERS}):
        publish("end_user.updated", person(user, changed=changed))


def _change_address(
    user: EndUser, changes: dict[str, Any], tenant: lookup.TenantContext, *, is_own: bool, keep: UUID | None
) -> None:
    """Apply a new address in `changes` now, or keep it pending until it is verified.

    It waits where the tenant requires verification, for a user who has a factor and for one whose address is verified:
    what these guard must not pass to an address that is not verified, and the owner of that address must not be left with
    an account that its former owner can take back. Only a verified address takes over an unused registration.

    Users who change their own address to a taken one are told by EmailTaken, unless the tenant requires verified addresses:
    then the change waits like any other, for a mail that its owner gets in another form, as at a registration.
    """
    new_email, key = changes["email"], email_key(changes["email"])
    if key == user.email_key:
        # Another spelling of the same address: a pending change to another address is cancelled.
        proofs.give_up_changes([user.pk])
        return
    pending = _must_wait(user, tenant)
    is_held = _is_held(key, user, pending=pending)
    if is_held and not (is_own and proofs.is_required(tenant)):
        raise EmailTaken
    proofs.limit_changes(user.pk)
    undo.offer_undo(END_USERS, user, tenant, pending=pending)
    if pending:
        keeping = EndUser.objects.filter(email_key=key).exclude(
            pk__in=unused_registrations.giving_way(key).values("pk")
        )
        holder = keeping.exclude(pk=user.pk).first() if is_held else None
        proofs.start_proof(user, new_email, key, tenant, keep=keep, mails=holder is None)
        if holder is not None:
            tell_owner(holder, tenant)
        del changes["email"]
    else:
        EmailProof.objects.filter(user=user).delete()
        changes["email_verified_at"] = None


def _must_wait(user: EndUser, tenant: lookup.TenantContext) -> bool:
    return proofs.is_required(tenant) or bool(user.mfa_methods) or user.email_verified_at is not None


def _is_held(key: str, user: EndUser, *, pending: bool) -> bool:
    """Return whether another user has the address and does not give it up."""
    holder_condition = (
        Q(email_key=key) & ~EndUser.YIELDS if pending else Q(email_key=key) | unused_registrations.reserving(key)
    )
    return EndUser.objects.filter(holder_condition).exclude(pk=user.pk).exists()


def set_end_user_active(*, tenant_id: UUID, user_id: UUID, active: bool, by: Principal) -> EndUser:
    """Activate or deactivate an end user. Deactivation is the specification's soft delete, and ends all sessions.

    Raises UnknownUser, GrantsMoreThanHeld (a user who holds more than the caller), InsufficientAuthentication (to
    deactivate).
    """
    if not active:
        require_assurance(Action.END_SESSIONS_OF_OTHERS, by)
    with in_tenant(tenant_id, editing_users(by)), tenant_atomic():
        user = _locked(user_id)
        must_outrank(by, user)
        user.active = active
        user.save(update_fields=["active", "updated_at"])
        end_user_activity_set.send(EndUser, user=user)
        if not active:
            end_sessions(END_USERS, user_id=user.pk, reason="deactivated")
            tickets.end_tickets(END_USERS, user.pk)
            proofs.give_up_changes([user.pk])
        event = "end_user.activated" if active else "end_user.deactivated"
        record_for_tenant(event, target=("end_user", user.pk))
        publish(event, person(user))
    return user


def reject_last_active(*, tenant_id: UUID, user_id: UUID) -> None:
    """Raise LastActiveUser before a proof is used up for an erasure that fails; the erasure itself decides races."""
    with in_tenant(tenant_id):
        if not EndUser.objects.filter(active=True).exclude(pk=user_id).exists():
            raise LastActiveUser


def erase_end_user(*, tenant_id: UUID, user_id: UUID, by: Principal) -> dict[str, int]:
    """Delete an end user with all dependent records. Return the number of deleted records of each kind.

    Erasures of one tenant run one after the other and lock only the user and one other active user, so the duration does
    not depend on the number of users. Raises LastActiveUser, UnknownUser, GrantsMoreThanHeld (a user who holds more than
    the caller), InsufficientAuthentication, NotSignedIn (a user who erases themselves after the session has ended).
    """
    if by.kind != END_USER:
        require_assurance(Action.END_SESSIONS_OF_OTHERS, by)
    with in_tenant(tenant_id, editing_users(by)):
        for _ in range(ERASE_ATTEMPTS):
            # A deleted session may get a refresh token concurrently; only the next attempt sees that token.
            with suppress(IntegrityError):
                return _erase(user_id, by)
    raise Unavailable


def _erase(user_id: UUID, by: Principal) -> dict[str, int]:
    with tenant_atomic():
        # Of the last two users, two concurrent erasures must not delete both.
        advisory_lock("tenant", ERASE_LOCK)
        user = _locked(user_id)
        if by.kind == END_USER:
            require_active_session(END_USERS, by)
        else:
            must_outrank(by, user)
        # Locking the remaining user makes a concurrent deactivation wait.
        if user.active and not EndUser.objects.filter(active=True).exclude(pk=user_id).select_for_update()[:1]:
            raise LastActiveUser
        deleted = {_kind(related.related_model): 0 for related in EndUser._meta.related_objects}
        forgotten = [user_id]
        for model, ids in end_user_erasing.call(user):
            deleted[_kind(model)] = len(ids)
            forgotten += ids
        if logouts.write(logouts.of_sessions(EndUserSession._default_manager.filter(user_id=user_id))):
            outbox.wake_after_commit()
        _, by_model = user.delete()
        # After the tickets: an attempt locks its ticket and then its counter; another order could deadlock.
        attempts.forget(END_USERS, user_id)
        for label, number in by_model.items():
            kind = _kind(apps.get_model(label))
            deleted[kind] = deleted.get(kind, 0) + number
        record_for_tenant("end_user.erased", target=("end_user", user_id), details={"deleted": deleted})
        outbox.forget(forgotten)
        forget_mails(user.email_key)
        publish("end_user.erased", {"user_id": user_id})
    return deleted


def _kind(model: type[Model]) -> str:
    """Return the name of a kind of record in responses: `role_bindings`, `backup_codes`."""
    name = str(model._meta.verbose_name_plural)
    return name.removeprefix("end user ").replace(" ", "_")


def database_mapping(*, tenant_id: UUID) -> dict[str, object]:
    """Return the database mapping of the specification. Raises UnknownTenant."""
    lookup.find(tenant_id)
    mapping = TenantDatabase.objects.select_related("server").get(pk=tenant_id)
    return {
        "tenant_id": tenant_id,
        "database_host": mapping.server.host,
        "database_name": mapping.name,
        "status": mapping.status,
    }
