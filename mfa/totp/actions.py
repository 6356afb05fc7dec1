"""TOTP and backup codes: begin, confirm, verify, disable, regenerate; for end users and admin users."""

import base64
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.utils.timezone import now

from identity_platform.crypto import SealBroken, SealContext, same, seal, unseal
from mfa import factors, verification
from mfa.completion import complete_by_enrollment, complete_second_step, consume_login, second_step, waiting_login
from mfa.enrollment import Caller, enrollment_proof
from mfa.errors import NotEnrolled, SecretNotIssued, TooManyPending
from mfa.notices import issuer_of
from mfa.totp import backup_codes, engine
from mfa.totp.models import AdminBackupCode, AdminTotpSecret, EndUserBackupCode, EndUserTotpSecret
from mfa.users import check_client, in_realm, lock_user, raise_unknown_email, require_user
from mfa.verification import Factor, Try, Unusable, Use
from tenants.states import Purpose
from userflow.accounts.realms import END_USERS, Realm
from userflow.credentials import attempts
from userflow.errors import InvalidCode, NotSignedInByTicket
from userflow.sessions.assurance import Action
from userflow.sessions.issue import TokenPair
from userflow.signin.proofs import proof_missing

PENDING_FOR: Final = timedelta(minutes=10)
PENDING_AT_ONCE: Final = 3
AMR: Final = ("otp",)  # RFC 8176 section 2


@dataclass(frozen=True, slots=True)
class Setup:
    """What beginSetup hands out, once."""

    secret: str
    manual_entry: str
    otp_auth_url: str
    qr_code: str
    account: str
    issuer: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """An enrolled authenticator: ten backup codes, shown once, and the tokens of the sign-in that waited for it."""

    user: Any
    backup_codes: list[str]
    tokens: TokenPair | None


@dataclass(frozen=True, slots=True)
class Verified:
    """A code that was right; with the tokens of the login that waited for it, if one did."""

    user: Any
    method: str
    tokens: TokenPair | None


def begin_totp_setup(
    *, realm: Realm, tenant_id: UUID | None, email: str, caller: Caller, client_id: UUID | None = None
) -> Setup:
    """Issue a secret to the user; it can be confirmed for ten minutes.

    Three may stand side by side, and a fourth is rejected rather than voiding one: nobody can void another's begin.
    Raises UnknownEmail (404), TooManyPending (429), and what `enrollment_proof` raises.
    """
    with in_realm(realm, tenant_id):
        _check_client(client_id, tenant_id)
        user = require_user(realm, email, caller)
        enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.TOTP)
        secret = engine.new_secret()
        with realm.atomic():
            if lock_user(realm, user.pk) is None:  # erased or deactivated since
                raise_unknown_email()
            _make_room(user)
            row = _secrets(realm)(user=user, expires_at=now() + PENDING_FOR)
            row.secret_sealed = seal(secret, data_key=realm.data_key(), context=_place(realm, user.pk, row.pk))
            row.save(force_insert=True)
        return _setup(realm, user, secret)


def show_totp_setup_again(*, realm: Realm, tenant_id: UUID | None, email: str, secret: str, caller: Caller) -> Setup:
    """A setup that waits to be confirmed, once more, for whoever has its secret: the first code was mistyped.

    Rejects as `begin_totp_setup` does, and with SecretNotIssued (400).
    """
    with in_realm(realm, tenant_id):
        user = require_user(realm, email, caller)
        enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.TOTP)
        return _setup(realm, user, _opened(realm, _pending(realm, user, secret)))


def _setup(realm: Realm, user: Any, secret: bytes) -> Setup:
    issuer = issuer_of(realm, user)
    url = engine.otp_auth_url(secret, issuer=issuer, account=user.email)
    return Setup(
        secret=engine.encoded(secret),
        manual_entry=engine.grouped(secret),
        otp_auth_url=url,
        qr_code=base64.b64encode(engine.qr_png(url)).decode("ascii"),
        account=user.email,
        issuer=issuer,
    )


def _make_room(user: Any) -> None:
    pending = user.totp_secrets.filter(confirmed_at=None)
    pending.filter(expires_at__lte=now()).delete()
    standing = list(pending.order_by("expires_at").values_list("expires_at", flat=True))
    if len(standing) >= PENDING_AT_ONCE:
        raise TooManyPending(retry_after=int((standing[0] - now()).total_seconds()) + 1)


def confirm_totp_setup(
    *,
    realm: Realm,
    tenant_id: UUID | None,
    email: str,
    secret: str,
    code: str,
    caller: Caller,
    client_id: UUID | None = None,
    mfa_token: str | None = None,
) -> Confirmed:
    """Enroll the secret with its first code; `mfa_token` completes the sign-in that waits for a factor.

    Only a secret that was issued to this user and is still held is taken. No attempt is counted: whoever knows the
    secret can compute the code. Raises UnknownEmail (404), SecretNotIssued, InvalidCode (400), NotSignedInByTicket
    (401), TooManyFromAddress (429), and what `enrollment_proof` raises.
    """
    attempts.reject_guessing_address()
    with in_realm(realm, tenant_id):
        _check_client(client_id, tenant_id)
        user = require_user(realm, email, caller)
        proof = enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.TOTP)
        login = waiting_login(realm=realm, mfa_token=mfa_token, user=user)
        row = _pending(realm, user, secret)
        step = engine.matching_step(_opened(realm, row), code, at=time.time())
        if step is None:
            attempts.count_wrong_secret()
            raise InvalidCode
        proven = factors.prove_replacement(realm=realm, user=user, proof=proof, caller=caller)
        with realm.atomic():
            locked = factors.lock_and_check(realm, user, proof)
            consume_login(realm, login)
            replaced = bool(locked.totp_secrets.filter(confirmed_at__isnull=False).delete()[0])
            if replaced and proof.own is not None and not proven:  # enrolled since the request began
                raise proof_missing()
            # A parallel confirmation of the same secret has taken the row meanwhile.
            if not locked.totp_secrets.filter(pk=row.pk, confirmed_at=None).update(confirmed_at=now(), last_step=step):
                raise SecretNotIssued
            locked.totp_secrets.filter(confirmed_at=None).delete()
            codes = _new_backup_codes(realm, locked)
            factors.finalize(
                realm,
                locked,
                change="replaced" if replaced else "enrolled",
                kind=factors.TOTP,
                proof=proof,
                factor_id=row.pk,
            )
            tokens = complete_by_enrollment(
                realm=realm, user=locked, login=login, amr=AMR, user_agent=caller.user_agent
            )
    return Confirmed(user, codes, tokens)


def _pending(realm: Realm, user: Any, secret: str) -> Any:
    found = None
    for row in user.totp_secrets.filter(confirmed_at=None, expires_at__gt=now()):
        if same(engine.encoded(_opened(realm, row)), secret):
            found = row
    if found is None:
        raise SecretNotIssued
    return found


def verify_totp(
    *,
    realm: Realm,
    tenant_id: UUID | None,
    email: str | None,
    caller: Caller,
    code: str | None = None,
    backup_code: str | None = None,
    mfa_token: str | None = None,
    client_id: UUID | None = None,
) -> Verified:
    """Check a code of the authenticator or, without one, spend a backup code; `mfa_token` completes a waiting login.

    Without `email` it is a code of the caller's own.
    A time step and a backup code are accepted once, also under parallel use. The try is counted before it is compared.
    Raises UnknownEmail (404), InvalidCode (400; also where nothing is enrolled), AttemptsLocked,
    TooManyFromAddress (429), NotSignedInByTicket (401).
    """
    attempts.reject_guessing_or_listing_address()
    with in_realm(realm, tenant_id, Purpose.SIGN_IN):
        _check_client(client_id, tenant_id)
        method = factors.TOTP if code is not None else factors.BACKUP_CODE
        # Opened before the try is counted: a locked data key must not use up the user's tries.
        realm.data_key()
        tried = verification.count_try(
            realm=realm, email=email, caller=caller, mfa_token=mfa_token, factor=_secret(realm, method)
        )
        user = tried.user
        if user is None:
            raise_unknown_email()
        try:
            if code is not None:
                tokens = _spend_step(realm, tried, code, caller)
            else:
                assert backup_code is not None  # the serializer wants one of the two
                tokens = _spend_backup_code(realm, tried, backup_code, caller)
        except SealBroken as moved:
            # A row of another user, tenant or database: it opens nothing, and somebody must hear of it.
            _record(realm, user, "seal.broken", method, outcome="failed")
            raise InvalidCode from moved
        except InvalidCode:
            attempts.count_wrong_secret()
            _record(realm, user, "factor.refused", method, outcome="refused")
            raise
    return Verified(user, method, tokens)


def _secret(realm: Realm, method: str) -> Factor:
    """The confirmed secret, found with its user."""
    columns = ("id", "secret_sealed", "last_step")
    return Factor(method, _secrets(realm)._meta.db_table, columns, "f.confirmed_at IS NOT NULL", {})


# A step at or before the last one is not taken again; of two requests at once one finds the row as it was.
_UNUSED_STEP = (
    "f.id = %(step_secret)s AND f.confirmed_at IS NOT NULL AND (f.last_step IS NULL OR f.last_step < %(step)s)"
)


def _spend_step(realm: Realm, tried: Try, code: str, caller: Caller) -> TokenPair | None:
    """Compare the code and use its step up; with the tokens of the login that waits. Raises InvalidCode."""
    user, (secret_id, sealed, last_step) = tried.user, tried.found
    assert user is not None  # the caller has rejected unknown people
    if secret_id is None:
        # The same work without a factor, so that the time does not tell who has one.
        engine.matching_step(engine.new_secret(), code, at=time.time())
        raise InvalidCode
    secret = unseal(sealed, data_key=realm.data_key(), context=_place(realm, user.pk, secret_id))
    step = engine.matching_step(secret, code, at=time.time(), after=last_step)
    if step is None:
        raise InvalidCode
    use = Use(
        kind=factors.TOTP,
        table=_secrets(realm)._meta.db_table,
        condition=_UNUSED_STEP,
        changes="last_step = %(step)s, last_used_at = now()",
        values={"step_secret": secret_id, "step": step},
    )
    earned = second_step(realm=realm, user=user, ticket=tried.login, amr=AMR, user_agent=caller.user_agent)
    try:
        return verification.spend(realm=realm, tried=tried, use=use, earned=earned)
    except Unusable as used:
        raise InvalidCode from used


def _spend_backup_code(realm: Realm, tried: Try, code: str, caller: Caller) -> TokenPair | None:
    """Spend the code; with the tokens of the login that waits. Raises InvalidCode, NotSignedInByTicket."""
    assert tried.user is not None  # the caller has rejected unknown people
    with realm.atomic():
        # The user's row first, as every change of factors does: two orders would end in a deadlock.
        locked = lock_user(realm, tried.user.pk)
        if locked is None:  # deactivated since
            raise InvalidCode if tried.login is None else NotSignedInByTicket
        _use_backup_code(realm, locked, code)
        tokens = complete_second_step(
            realm=realm, user=locked, ticket=tried.login, amr=AMR, user_agent=caller.user_agent
        )
        attempts.clear(realm, locked.pk, factor=factors.BACKUP_CODE, caller=tried.caller)
        if tokens is None:
            _record(realm, locked, "factor.verified", factors.BACKUP_CODE)
    return tokens


def _use_backup_code(realm: Realm, user: Any, code: str) -> None:
    digest = backup_codes.digest(code, data_key=realm.data_key(), user_id=user.pk)
    if not user.backup_codes.filter(digest=digest, used_at=None).update(used_at=now()):
        raise InvalidCode
    if not user.backup_codes.filter(used_at=None).exists():
        realm.users._default_manager.filter(pk=user.pk).update(mfa_methods=factors.methods_of(user))


def disable_totp(
    *, realm: Realm, tenant_id: UUID | None, email: str, caller: Caller, client_id: UUID | None = None
) -> None:
    """Remove the user's authenticator and backup codes.

    Only users themselves do it, with `caller.proof`. Raises UnknownEmail (404), NotEnrolled (400), LastFactor (409), and
    what `factors.own_change` raises.
    """
    with in_realm(realm, tenant_id):
        _check_client(client_id, tenant_id)
        user = require_user(realm, email, caller)
        factors.check_own_session(Action.REMOVE_FACTOR, realm=realm, user=user, caller=caller)
        if factors.TOTP not in user.mfa_methods:
            raise NotEnrolled
        proof = factors.own_removal(realm=realm, user=user, kind=factors.TOTP, caller=caller)
        with realm.atomic():
            locked = factors.lock_and_check(realm, user, proof)
            if not locked.totp_secrets.filter(confirmed_at__isnull=False).delete()[0]:
                raise NotEnrolled
            locked.backup_codes.all().delete()
            factors.finalize(realm, locked, change="removed", kind=factors.TOTP, proof=proof)


def regenerate_backup_codes(
    *, realm: Realm, tenant_id: UUID | None, email: str, caller: Caller, client_id: UUID | None = None
) -> list[str]:
    """Ten new backup codes instead of the old ones, for users themselves.

    Raises UnknownEmail (404), NotEnrolled (400), and what `factors.own_change` raises.
    """
    with in_realm(realm, tenant_id):
        _check_client(client_id, tenant_id)
        user = require_user(realm, email, caller)
        proof = factors.own_change(Action.RENEW_BACKUP_CODES, realm=realm, user=user, kind=factors.TOTP, caller=caller)
        with realm.atomic():
            locked = factors.lock_and_check(realm, user, proof)
            if not locked.totp_secrets.filter(confirmed_at__isnull=False).exists():
                raise NotEnrolled
            codes = _new_backup_codes(realm, locked)
            factors.finalize(realm, locked, change="regenerated", kind=factors.BACKUP_CODE, proof=proof)
    return codes


def _new_backup_codes(realm: Realm, user: Any) -> list[str]:
    codes = backup_codes.new_codes()
    key = realm.data_key()
    kept: Any = AdminBackupCode if realm is not END_USERS else EndUserBackupCode
    user.backup_codes.all().delete()
    kept._default_manager.bulk_create(
        kept(
            user=user,
            digest=backup_codes.digest(backup_codes.normalised(code) or "", data_key=key, user_id=user.pk),
        )
        for code in codes
    )
    return codes


def _check_client(client_id: UUID | None, tenant_id: UUID | None) -> None:
    if tenant_id is not None:
        check_client(client_id, tenant_id)


def _secrets(realm: Realm) -> Any:
    return EndUserTotpSecret if realm is END_USERS else AdminTotpSecret


def _place(realm: Realm, user_id: UUID, secret_id: UUID) -> SealContext:
    # The user belongs to the place: a secret copied to somebody else's row does not open there.
    table = _secrets(realm)._meta.db_table
    return SealContext(tenant=realm.owner(), table=table, column="secret_sealed", row=f"{user_id}/{secret_id}")


def _opened(realm: Realm, row: Any) -> bytes:
    return unseal(bytes(row.secret_sealed), data_key=realm.data_key(), context=_place(realm, row.user_id, row.pk))


def _record(realm: Realm, user: Any, action: str, method: str, *, outcome: str = "success") -> None:
    realm.record(
        action,
        target=("end_user" if realm is END_USERS else "admin_user", user.pk),
        tenant_id=getattr(user, "tenant_id", None),
        outcome=outcome,
        details={"kind": method},
    )
