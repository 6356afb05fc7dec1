"""Enroll, list, remove and reset factors of every kind.

A confirmation runs in one `realm.atomic()`: `locked = lock_and_check(realm, user, factor_proof)`, store the factor,
`finalize(realm, locked, ...)`. The relations of `_ENROLLED` lead from a user to the factors; each model has `summary()`.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal, TypedDict
from uuid import UUID

from django.db.models import Max, Model, Q, QuerySet
from django.utils.timezone import now

from identity_platform.postgresql.row_errors import first_or
from mfa import notices, passes
from mfa.enrollment import Kind, Proof, address_is_missing, check_again, enrollment_action
from mfa.errors import LastFactor, NoProof, TokenOfAnotherUser, UnknownFactor
from mfa.factor_models import Factor
from mfa.webauthn.models import Passkey
from tenants.entering.context import current_tenant
from tenants.journals import revocations
from tenants.states import Purpose
from userflow.accounts.models import PASSWORD_ALONE, Account, EndUser
from userflow.accounts.principals import Principal
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.session_models import Ticket
from userflow.accounts.session_policy import AAL2
from userflow.credentials import tickets
from userflow.errors import NotSignedInByTicket, UnknownUser
from userflow.events.outbox import publish
from userflow.sessions.assurance import Action, reject_third_party, require_assurance
from userflow.sessions.ending import end_sessions
from userflow.sessions.issue import realm_of
from userflow.signin.caller import Caller, is_this_user
from userflow.signin.proofs import kind_of_proof, prove_own_change

TOTP: Final = "totp"
SMS: Final = "sms"
WEBAUTHN: Final = "webauthn"
BACKUP_CODE: Final = "backup_code"

# By method, in the order in which logins list them: the user's relation, and which of its rows are enrolled.
_ENROLLED: Final[Mapping[str, tuple[str, Q]]] = {
    WEBAUTHN: ("passkeys", Q()),
    TOTP: ("totp_secrets", Q(confirmed_at__isnull=False)),
    SMS: ("phones", Q()),
    BACKUP_CODE: ("backup_codes", Q(used_at=None)),
}

_KINDS: Final[tuple[Kind, ...]] = (WEBAUTHN, TOTP, SMS)
# Since when a row can prove something; of the others since it was created.
_SINCE: Final[Mapping[str, str]] = {TOTP: "confirmed_at"}

# The webhook event of each change.
_EVENTS: Final[Mapping[str, str]] = {
    "enrolled": "factor.enrolled",
    "replaced": "factor.enrolled",
    "regenerated": "factor.enrolled",
    "removed": "factor.removed",
    "reset": "factor.reset",
}


def lock_and_check(realm: Realm, user: Account, factor_proof: Proof, *, login: Ticket | None = None) -> Account:
    """Lock the user's row, check the proof again and consume it for its kind; return the user as stored now.

    `login` is the ticket of the sign-in that the factor completes; it is consumed too, before `finalize` ends the tickets of
    a user with a first factor. Only the first factor completes a sign-in: a further one would stand for those that the user
    has. Call it first in the transaction that confirms. Raises as `enrollment_proof`, and NotSignedInByTicket (401) if another
    caller has used the login, or enrolled a factor.
    """
    locked = realm.lock_user(user.pk)
    if locked is None:
        raise NoProof
    check_again(realm, locked, factor_proof)
    if login is not None:
        if locked.mfa_methods:
            raise NotSignedInByTicket
        tickets.consume_ticket(realm, login)
    return locked


def check_own_session(action: Action, *, realm: Realm, user: Account, caller: Caller) -> Principal:
    """Return the caller's session if it is the user's own and has the assurance of the action.

    Raises NoProof, InsufficientAuthentication (401), TokenOfAnotherUser (403).
    """
    if caller.principal is None:
        raise NoProof
    if not is_this_user(realm, user, caller.principal):
        raise TokenOfAnotherUser
    require_assurance(action, caller.principal)
    return caller.principal


def own_change(action: Action, *, realm: Realm, user: Account, kind: Kind, caller: Caller) -> Proof:
    """Check and consume the proof in the request; return the caller's right to change an own factor.

    Call it outside a transaction, after every check that needs no proof: a code works once. Raises the errors of
    `check_own_session`, and those of `check_proof` if the action needs a proof.
    """
    principal = check_own_session(action, realm=realm, user=user, caller=caller)
    prove_own_change(action, principal=principal, proof=caller.proof)
    return Proof(kind, "bearer", principal=principal, proven=action)


def own_removal(*, realm: Realm, user: Account, kind: Kind, caller: Caller, factor_id: UUID | None = None) -> Proof:
    """Do `own_change` for the removal of all factors of a kind, or of one. A removal that cannot succeed consumes no proof.

    Raises LastFactor (409) as well.
    """
    principal = check_own_session(Action.REMOVE_FACTOR, realm=realm, user=user, caller=caller)
    remaining = _methods_without(user, kind, factor_id)
    _check_not_last(principal, remaining=remaining)
    # A sign-in would ask for passkeys that only another address can use.
    if not remaining and _other_passkeys(user, kind, factor_id).exists():
        raise LastFactor
    return own_change(Action.REMOVE_FACTOR, realm=realm, user=user, kind=kind, caller=caller)


def _methods_without(user: Account, kind: Kind, factor_id: UUID | None) -> list[str]:
    """The methods that remain without this factor, or without all of its kind, and can be used.

    Backup codes are removed with TOTP, and with the last factor.
    """
    enrolled = _enrolled(user)
    if isinstance(user, EndUser):
        usable = Passkey.usable_with(current_tenant().effective["webauthn_rp_id"])
        enrolled[WEBAUTHN] = enrolled[WEBAUTHN].filter(usable)
    of_kind = enrolled.pop(kind)
    if factor_id is not None:
        enrolled[kind] = of_kind.exclude(pk=factor_id)
    if kind == TOTP:
        del enrolled[BACKUP_CODE]
    left = [method for method, rows in enrolled.items() if rows.exists()]
    return [] if left == [BACKUP_CODE] else left


def _other_passkeys(user: Account, kind: Kind, factor_id: UUID | None) -> QuerySet[Model]:
    """Return the passkeys that stay, usable or not."""
    passkeys = _enrolled(user)[WEBAUTHN]
    if kind != WEBAUTHN:
        return passkeys
    return passkeys.exclude(pk=factor_id) if factor_id is not None else passkeys.none()


def enrolled_rows(realm: Realm) -> Mapping[str, QuerySet[Model]]:
    """Return the enrolled factors of all users of the realm, by method. Call it in the realm."""
    relations = {kind: (getattr(realm.users, name, None), rows) for kind, (name, rows) in _ENROLLED.items()}
    return {
        kind: relation.rel.related_model._default_manager.filter(rows)
        for kind, (relation, rows) in relations.items()
        if relation is not None
    }


def has_factor(user: Account) -> bool:
    """Return whether the user has a factor besides backup codes, which are no use alone."""
    enrolled = _enrolled(user)
    return any(enrolled[kind].exists() for kind in _KINDS if kind in enrolled)


def _check_not_last(principal: Principal, *, remaining: list[str]) -> None:
    """Raise LastFactor (409) if no method remains and the policy in force requires one."""
    if not remaining and principal.required_acr == AAL2:
        raise LastFactor


def require_proof_in_request(*, user: Account, factor_proof: Proof, caller: Caller) -> None:
    """Raise ValidationFailed if a session enrolls a factor and the request has no proof, before anything is used up."""
    if factor_proof.principal is not None and (factor_proof.ticket is None or user.mfa_methods):
        kind_of_proof(caller.proof)


def prove_enrollment(*, realm: Realm, user: Account, factor_proof: Proof, caller: Caller) -> Proof:
    """Check and consume the proof in the request that a session needs to enroll a factor; return what `lock_and_check` takes.

    For the first factor the ticket of the sign-in, sent beside the token, stands for it. Tickets and windows need nothing
    more. Raises what `own_change` raises.
    """
    if factor_proof.principal is None:
        return factor_proof
    action = enrollment_action(user.mfa_methods, factor_proof.kind)
    if factor_proof.ticket is None or action is not Action.FIRST_FACTOR:
        own_change(action, realm=realm, user=user, kind=factor_proof.kind, caller=caller)
    return replace(factor_proof, proven=action)


def finalize(
    realm: Realm,
    user: Account,
    *,
    change: str,
    kind: str,
    factor_proof: Proof | Literal["admin", "first_link"],
    factor_id: UUID | None = None,
    **details: object,
) -> None:
    """Finish a change in its transaction: store `mfa_methods`, write the audit event, mail the user after the commit.

    `change` is enrolled, replaced, removed, reset or regenerated. `factor_proof` is the user's own, or names why there is none.
    """
    own_proof = factor_proof if isinstance(factor_proof, Proof) else None
    before = bool(user.mfa_methods)
    user.mfa_methods = methods_of(user)
    realm.users._default_manager.filter(pk=user.pk).update(mfa_methods=user.mfa_methods, updated_at=now())
    _end_older_sessions_and_tickets(realm, user, change, own_proof, had_factors=before)
    level = factor_proof.level if isinstance(factor_proof, Proof) else factor_proof
    facts = {"kind": kind, "rung": level, **({"factor_id": str(factor_id)} if factor_id else {}), **details}
    realm.record_about(user, f"factor.{change}", facts)
    if realm is END_USERS:
        data = {"user_id": user.pk, "kind": kind, "change": change, "mfa_methods": user.mfa_methods}
        publish(_EVENTS[change], data)
    notices.mail_factor_change(realm, user, change=change, kind=kind, by_admin=level == "admin")


def _end_older_sessions_and_tickets(
    realm: Realm, user: Account, change: str, factor_proof: Proof | None, *, had_factors: bool
) -> None:
    """End the sessions, tickets and windows from before the change.

    The first factor and the loss of the last one change what a session must have verified: every other session of the user
    ends, a reset ends them all. Tickets and windows were given to a user without a factor, and end with the first one (the
    ticket that enrolled it may add one more kind) and whenever a factor goes. Raises LastFactor (409) when users remove
    the factor that the policy in force requires of them.
    """
    principal = factor_proof.principal if factor_proof is not None else None
    first, last = not had_factors and user.mfa_methods, had_factors and not user.mfa_methods
    if last and principal is not None:
        _check_not_last(principal, remaining=user.mfa_methods)
    if first or last or change == "reset":
        keep = principal.session_id if principal is not None else None
        end_sessions(realm, user_id=user.pk, keep=keep, reason=f"factor_{change}")
    if first:
        used = factor_proof.ticket.digest if factor_proof is not None and factor_proof.ticket is not None else None
        tickets.end_tickets(realm, user.pk, keep=used)
    elif change in ("removed", "reset", "replaced"):
        end_enrollment(realm, user)
    elif change == "regenerated":
        tickets.forget_devices(realm, user.pk)


def refresh_methods(tenant_id: UUID, user_ids: Collection[UUID]) -> dict[str, int]:
    """Store the methods of end users whose factors a restore has removed; return how many passwords end, by kind.

    Backup codes go with the last factor, and so does the password, which would sign in alone. It stays if the journal has
    that the last factor was removed since the backup in the ordinary way.
    """
    enrolled = enrolled_rows(END_USERS)
    holders = {
        method: set(rows.filter(user_id__in=user_ids).values_list("user_id", flat=True))
        for method, rows in enrolled.items()
    }
    without = set(user_ids).difference(*(holders[kind] for kind in _KINDS))
    enrolled[BACKUP_CODE].model._base_manager.filter(user_id__in=without).delete()
    holders[BACKUP_CODE] -= without
    # Not by user: there are few combinations of methods, and may be many users.
    users_by_methods: dict[tuple[str, ...], list[UUID]] = {}
    for user_id in user_ids:
        methods = tuple(method for method, users in holders.items() if user_id in users)
        users_by_methods.setdefault(methods, []).append(user_id)
    for methods, same in users_by_methods.items():
        EndUser.objects.filter(pk__in=same).update(mfa_methods=list(methods), updated_at=now())
    return revocations.end_unless_granted(tenant_id, EndUser, PASSWORD_ALONE, without) if without else {}


def methods_of(user: Account, *, before: datetime | None = None) -> list[str]:
    """Return the user's enrolled methods, or those that were enrolled before a time, in the order of the login response."""
    enrolled = _enrolled(user)
    if before is not None:
        enrolled = {method: rows.filter(**{f"{since_field(method)}__lt": before}) for method, rows in enrolled.items()}
    return [method for method, rows in enrolled.items() if rows.exists()]


def since_field(method: str) -> str:
    """Return the field of a method's rows that says since when they can prove something."""
    return _SINCE.get(method, "created_at")


def enrolled_since(user: Account, method: str, **which: object) -> datetime | None:
    """Return since when the user's newest enrolled row of the method can prove something; None if there is none.

    Backup codes are all made together. `which` selects one of several passkeys.
    """
    rows = _enrolled(user).get(method)
    if rows is None:
        return None
    newest: datetime | None = rows.filter(**which).aggregate(since=Max(since_field(method)))["since"]
    return newest


def _enrolled(user: Account) -> dict[str, QuerySet[Model]]:
    return {method: rows.filter(_ENROLLED[method][1]) for method, rows in _rows(user).items()}


def _rows(user: Account) -> dict[str, QuerySet[Model]]:
    """Return the rows of each method, enrolled or not. Admin users have no phones."""
    return {
        method: getattr(user, relation).all() for method, (relation, _) in _ENROLLED.items() if hasattr(user, relation)
    }


def end_enrollment(realm: Realm, user: Account) -> None:
    """Close the user's windows, end the enrollment tickets, and forget the browsers that skip the second step."""
    tickets.close_windows(realm, user.pk)
    ended = (tickets.ENROLLMENT, tickets.PASS, tickets.REMEMBERED)
    realm.tickets._default_manager.filter(user_id=user.pk, purpose__in=ended).delete()


class FactorList(TypedDict):
    factors: list[dict[str, object]]
    methods: list[str]
    backup_codes_remaining: int


def list_factors(
    *, realm: Realm, tenant_id: UUID | None, user_id: UUID, purpose: Purpose = Purpose.WRITE
) -> FactorList:
    """Return the user's factors with `methods` and `backup_codes_remaining`; no secret, no full phone number.

    `purpose` is what the tenant is entered for: operators look into one that its own people cannot use. Raises
    UnknownUser (404) when the user has just been erased.
    """
    with realm.entered(tenant_id, purpose):
        user = first_or(realm.users._default_manager.filter(pk=user_id), UnknownUser)
        summaries = [
            factor.summary()
            for method, rows in _enrolled(user).items()
            if method != BACKUP_CODE
            for factor in rows.order_by("created_at")
            if isinstance(factor, Factor)
        ]
        return {
            "factors": summaries,
            "methods": user.mfa_methods,
            "backup_codes_remaining": _enrolled(user)[BACKUP_CODE].count(),
        }


def remove_factor(*, principal: Principal, factor_id: UUID, proof: Mapping[str, object]) -> str:
    """Remove one of the caller's own factors; return its kind. The backup codes go with TOTP and with the last factor.

    Raises InsufficientAuthentication (401), UnknownFactor (404), LastFactor (409), and the errors of `check_proof`.
    """
    realm = realm_of(principal.kind)
    caller = Caller(principal=principal, proof=proof)
    with realm.entered(principal.tenant_id):
        require_assurance(Action.REMOVE_FACTOR, principal)
        user = first_or(realm.users._default_manager.filter(pk=principal.id), UnknownFactor)
        kind = _kind_of(user, factor_id)
        factor_proof = own_removal(realm=realm, user=user, kind=kind, caller=caller, factor_id=factor_id)
        with realm.atomic():
            locked = lock_and_check(realm, user, factor_proof)
            if not _enrolled(locked)[kind].filter(pk=factor_id).delete()[0]:
                raise UnknownFactor
            if kind == TOTP or not has_factor(locked):
                _rows(locked)[BACKUP_CODE].delete()
            finalize(realm, locked, change="removed", kind=kind, factor_proof=factor_proof, factor_id=factor_id)
    return kind


def rename_passkey(*, principal: Principal, factor_id: UUID, name: str) -> dict[str, object]:
    """Give one of the caller's own passkeys a name, or with an empty one that of its model; return it as lists show it.

    Raises NotAllowed (403, third-party applications), UnknownFactor (404; other factors have no names).
    """
    realm = realm_of(principal.kind)
    reject_third_party(principal)
    with realm.entered(principal.tenant_id), realm.atomic():
        user = first_or(realm.users._default_manager.filter(pk=principal.id), UnknownFactor)
        passkey = _enrolled(user)[WEBAUTHN].select_for_update().filter(pk=factor_id).first()
        if not isinstance(passkey, Passkey):
            raise UnknownFactor
        passkey.name = name
        passkey.save(update_fields=["name"])
        realm.record_about(user, "factor.renamed", {"kind": WEBAUTHN, "factor_id": str(factor_id)})
        return passkey.summary()


def _kind_of(user: Account, factor_id: UUID) -> Kind:
    enrolled = _enrolled(user)
    for kind in _KINDS:
        if kind in enrolled and enrolled[kind].filter(pk=factor_id).exists():
            return kind
    raise UnknownFactor


def reset_factors(
    *, realm: Realm, tenant_id: UUID | None, user_id: UUID, reason: str, by: Principal | None
) -> dict[str, int]:
    """Remove every factor of a user who has lost them, and mail an enrollment pass to the user.

    Return how many of each kind were removed. Sessions, codes, pending setups and tickets of the user end with them.
    `by=None` is a command on the machine. Raises InsufficientScope, NotForYourself, GrantsMoreThanHeld (403),
    InsufficientAuthentication (401), UnknownUser (404), UnknownTenant, TenantSuspended, TenantBusy.
    """
    with passes.user_for_admin(realm, tenant_id, user_id, by=by, action=Action.RESET_FACTORS) as user:
        removed = _remove_all(realm, user)
        tickets.end_tickets(realm, user.pk)
        finalize(realm, user, change="reset", kind="all", factor_proof="admin", reason=reason, removed=removed)
        if not address_is_missing(realm, user):
            passes.create_pass(realm, user, reason=reason, deliver="mail")
    return removed


def remove_unverified_factors(realm: Realm, user: Account) -> int:
    """Remove every factor that was enrolled before the address of the user was verified; return how many there were.

    For `userflow.email.ownership`. The owner of the address is told by mail.
    """
    removed = _remove_all(realm, user)
    if any(removed.values()):
        finalize(realm, user, change="removed", kind="all", factor_proof="first_link", removed=removed)
    return sum(removed.values())


def _remove_all(realm: Realm, user: Account) -> dict[str, int]:
    """Remove every factor, confirmed or not, and every SMS code; return how many of each kind were removed."""
    removed = {method: rows.delete()[0] for method, rows in _rows(user).items()}
    if isinstance(user, EndUser):
        user.sms_codes.all().delete()
    return removed
