"""TOTP and backup codes of end users and admin users: begin, confirm, verify, disable, regenerate."""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils.timezone import now

from identity_platform.crypto import SealBroken, SealContext, constant_time_equal, seal, unseal
from mfa import completion, factors, queries
from mfa.completion import Verified, complete_by_enrollment, second_step_completion, waiting_login
from mfa.enrollment import enrollment_proof
from mfa.errors import NotEnrolled, SecretNotIssued, TooManyPending
from mfa.notices import issuer_of
from mfa.queries import FactorUnusable, StepUse
from mfa.totp import backup_codes, engine
from mfa.totp.models import (
    BackupCode,
    TotpSecret,
)
from mfa.users import check_client, check_tenant, is_exempt, raise_unknown_email, require_user
from tenants.states import Purpose
from userflow.accounts.models import Account
from userflow.accounts.realms import Realm
from userflow.credentials import attempts
from userflow.errors import InvalidCode
from userflow.sessions.assurance import Action
from userflow.signin.caller import Caller
from userflow.signin.pipeline import SignedIn

PENDING_FOR: Final = timedelta(minutes=10)
PENDING_AT_ONCE: Final = 3
AMR: Final = ("otp",)  # RFC 8176 section 2


@dataclass(frozen=True, slots=True)
class Setup:
    """What beginSetup returns, once."""

    secret: str
    manual_entry: str
    otp_auth_url: str
    qr_code: str
    account: str
    issuer: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """An enrolled authenticator: ten backup codes, shown once, and the tokens of the sign-in that waited for it."""

    user: Account
    backup_codes: list[str]
    signed_in: SignedIn[Account] | None


def begin_totp_setup(
    *, realm: Realm, tenant_id: UUID | None, email: str, caller: Caller, client_id: UUID | None = None
) -> Setup:
    """Issue a secret to the user; it can be confirmed for ten minutes.

    A user may have three; a fourth is rejected and invalidates none, so that no caller can undo another caller's begin.
    Raises UnknownEmail (404), TooManyPending (429), and what `enrollment_proof` raises.
    """
    with realm.entered(tenant_id):
        check_client(client_id, tenant_id)
        user = require_user(realm, email, caller)
        enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.TOTP)
        secret = engine.new_secret()
        with realm.atomic():
            if realm.lock_user(user.pk) is None:  # erased or deactivated since
                raise_unknown_email()
            _limit_pending(realm, user)
            row = _secrets(realm)(user_id=user.pk, expires_at=now() + PENDING_FOR)
            row.secret_sealed = seal(secret, data_key=realm.data_key(), context=_seal_context(realm, user.pk, row.pk))
            row.save(force_insert=True)
        return _setup(realm, user, secret)


def show_totp_setup_again(*, realm: Realm, tenant_id: UUID | None, email: str, secret: str, caller: Caller) -> Setup:
    """Return a setup that waits for confirmation again, to a caller who has its secret: the first code was mistyped.

    Raises what `begin_totp_setup` raises, and SecretNotIssued (400).
    """
    with realm.entered(tenant_id):
        user = require_user(realm, email, caller)
        enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.TOTP)
        return _setup(realm, user, _unsealed(realm, user, _pending(realm, user, secret)))


def _setup(realm: Realm, user: Account, secret: bytes) -> Setup:
    issuer = engine.label_issuer(issuer_of(realm, user))
    url = engine.otp_auth_url(secret, issuer=issuer, account=user.email)
    return Setup(
        secret=engine.encoded(secret),
        manual_entry=engine.grouped(secret),
        otp_auth_url=url,
        qr_code=base64.b64encode(engine.qr_png(url)).decode("ascii"),
        account=user.email,
        issuer=issuer,
    )


def _limit_pending(realm: Realm, user: Account) -> None:
    pending = _secrets_of(realm, user).filter(confirmed_at=None)
    pending.filter(expires_at__lte=now()).delete()
    ends = list(pending.order_by("expires_at").values_list("expires_at", flat=True))
    if len(ends) >= PENDING_AT_ONCE:
        raise TooManyPending(retry_after=int((ends[0] - now()).total_seconds()) + 1)


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

    Only a secret that was issued to this user and has not expired is accepted. No attempt is counted: a caller who knows
    the secret can compute the code. Raises UnknownEmail (404), SecretNotIssued, InvalidCode (400), NotSignedInByTicket
    (401), TooManyFromAddress (429), and what `enrollment_proof` raises.
    """
    with realm.entered(tenant_id):
        check_client(client_id, tenant_id)
        user = require_user(realm, email, caller)
        factor_proof = enrollment_proof(realm=realm, user=user, caller=caller, kind=factors.TOTP)
        login = waiting_login(realm=realm, mfa_token=mfa_token, user=user)
        row = _pending(realm, user, secret)
        step = engine.matching_step(_unsealed(realm, user, row), code, at=time.time())
        if step is None:
            attempts.count_wrong_secret()
            raise InvalidCode
        factor_proof = factors.prove_enrollment(realm=realm, user=user, factor_proof=factor_proof, caller=caller)
        with realm.atomic():
            locked = factors.lock_and_check(realm, user, factor_proof, login=login)
            replaced = bool(_secrets_of(realm, locked).filter(confirmed_at__isnull=False).delete()[0])
            pending = _secrets_of(realm, locked).filter(confirmed_at=None)
            # A parallel confirmation of the same secret may have confirmed the row meanwhile.
            if not pending.filter(pk=row.pk).update(confirmed_at=now(), last_step=step):
                raise SecretNotIssued
            pending.delete()
            codes = _new_backup_codes(realm, locked)
            change = "replaced" if replaced else "enrolled"
            factors.finalize(
                realm, locked, change=change, kind=factors.TOTP, factor_proof=factor_proof, factor_id=row.pk
            )
            signed_in = complete_by_enrollment(realm=realm, user=locked, login=login, amr=AMR, caller=caller)
    return Confirmed(user, codes, signed_in)


def _pending(realm: Realm, user: Account, secret: str) -> TotpSecret:
    matching_row = None
    for row in _secrets_of(realm, user).filter(confirmed_at=None, expires_at__gt=now()):
        if constant_time_equal(engine.encoded(_unsealed(realm, user, row)), secret):
            matching_row = row
    if matching_row is None:
        raise SecretNotIssued
    return matching_row


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
    """Check a code of the authenticator or, without one, use a backup code; `mfa_token` completes a waiting login.

    Without `email` the code is the caller's own. A time step and a backup code are accepted once, also under parallel use.
    The attempt is counted before the comparison. Raises UnknownEmail (404), InvalidCode (400; also if nothing is enrolled),
    AttemptsLocked, TooManyFromAddress (429), NotSignedInByTicket (401).
    """
    exempt = is_exempt(realm, caller, email, mfa_token=mfa_token)
    with (
        attempts.guess(attempts.WRONG_SECRET, attempts.UNKNOWN_USER, exempt=exempt),
        realm.entered(tenant_id, Purpose.SIGN_IN),
    ):
        check_client(client_id, tenant_id)
        method = factors.TOTP if code is not None else factors.BACKUP_CODE
        # Unwrapped before the attempt is counted: a locked data key must not use up the user's attempts.
        realm.data_key()
        counted = queries.count_attempt(realm=realm, email=email, caller=caller, mfa_token=mfa_token, kind=method)
        if counted is None:
            raise_unknown_email()
        user = counted.attempt.user
        check_tenant(user)
        use: StepUse | Callable[[], None]
        try:
            if code is not None:
                use = _matched_step(realm, user, counted.secret, code)
            else:
                assert backup_code is not None  # the serializer requires one of the two
                use = partial(_use_backup_code, realm, user, code=backup_code)
            signed_in = completion.consume_factor(
                realm=realm,
                attempt=counted.attempt,
                kind=method,
                use=use,
                completion=second_step_completion(user=user, login=counted.attempt.login, amr=AMR, caller=caller),
            )
        except SealBroken as broken:
            # A row of another user, tenant or database. It opens nothing, and the operators must know.
            completion.record(realm, user, "seal.broken", method, outcome="failed")
            raise InvalidCode from broken
        except (InvalidCode, FactorUnusable) as wrong:
            attempts.count_wrong_secret()
            completion.record(realm, user, "factor.refused", method, outcome="refused")
            raise InvalidCode from wrong
    return Verified(user, method, signed_in)


def _matched_step(realm: Realm, user: Account, row: TotpSecret | None, code: str) -> StepUse:
    """Compare the code; return the use of its time step. Raises InvalidCode, SealBroken."""
    if row is None:
        # The same work without a factor, so that the time does not tell who has one.
        engine.matching_step(engine.new_secret(), code, at=time.time())
        raise InvalidCode
    step = engine.matching_step(_unsealed(realm, user, row), code, at=time.time(), after=row.last_step)
    if step is None:
        raise InvalidCode
    return StepUse(row.pk, step)


def _use_backup_code(realm: Realm, user: Account, *, code: str) -> None:
    digest = backup_codes.digest(code, data_key=realm.data_key(), user_id=user.pk)
    if not _codes_of(realm, user).filter(digest=digest, used_at=None).update(used_at=now()):
        raise FactorUnusable
    if not _codes_of(realm, user).filter(used_at=None).exists():
        realm.users._default_manager.filter(pk=user.pk).update(mfa_methods=factors.methods_of(user))


def disable_totp(
    *, realm: Realm, tenant_id: UUID | None, email: str, caller: Caller, client_id: UUID | None = None
) -> None:
    """Remove the user's authenticator and backup codes.

    Only users themselves can, with `caller.proof`. Raises UnknownEmail (404), NotEnrolled (400), LastFactor (409), and what
    `factors.own_change` raises.
    """
    with realm.entered(tenant_id):
        check_client(client_id, tenant_id)
        user = require_user(realm, email, caller)
        factors.check_own_session(Action.REMOVE_FACTOR, realm=realm, user=user, caller=caller)
        if factors.TOTP not in user.mfa_methods:
            raise NotEnrolled
        factor_proof = factors.own_removal(realm=realm, user=user, kind=factors.TOTP, caller=caller)
        with realm.atomic():
            locked = factors.lock_and_check(realm, user, factor_proof)
            if not _secrets_of(realm, locked).filter(confirmed_at__isnull=False).delete()[0]:
                raise NotEnrolled
            _codes_of(realm, locked).delete()
            factors.finalize(realm, locked, change="removed", kind=factors.TOTP, factor_proof=factor_proof)


def regenerate_backup_codes(
    *, realm: Realm, tenant_id: UUID | None, email: str, caller: Caller, client_id: UUID | None = None
) -> list[str]:
    """Replace the backup codes by ten new ones, for users with a factor of any kind. Only users themselves can.

    Raises UnknownEmail (404), NotEnrolled (400), and what `factors.own_change` raises.
    """
    with realm.entered(tenant_id):
        check_client(client_id, tenant_id)
        user = require_user(realm, email, caller)
        renewal = Action.RENEW_BACKUP_CODES
        factors.check_own_session(renewal, realm=realm, user=user, caller=caller)
        if not factors.has_factor(user):
            raise NotEnrolled
        factor_proof = factors.own_change(renewal, realm=realm, user=user, kind=factors.TOTP, caller=caller)
        with realm.atomic():
            locked = factors.lock_and_check(realm, user, factor_proof)
            if not factors.has_factor(locked):
                raise NotEnrolled
            codes = _new_backup_codes(realm, locked)
            factors.finalize(realm, locked, change="regenerated", kind=factors.BACKUP_CODE, factor_proof=factor_proof)
    return codes


def _new_backup_codes(realm: Realm, user: Account) -> list[str]:
    codes = backup_codes.new_codes()
    key = realm.data_key()
    plain = [backup_codes.normalised(code) or "" for code in codes]
    digests = [backup_codes.digest(code, data_key=key, user_id=user.pk) for code in plain]
    _codes_of(realm, user).delete()
    model = _code_model(realm)
    model._default_manager.bulk_create(model(user_id=user.pk, digest=digest) for digest in digests)
    return codes


def _secrets(realm: Realm) -> type[TotpSecret]:
    model: type[TotpSecret] = realm.model_of("totp_secrets")
    return model


def _secrets_of(realm: Realm, user: Account) -> QuerySet[TotpSecret]:
    return _secrets(realm)._default_manager.filter(user_id=user.pk)


def _code_model(realm: Realm) -> type[BackupCode]:
    model: type[BackupCode] = realm.model_of("backup_codes")
    return model


def _codes_of(realm: Realm, user: Account) -> QuerySet[BackupCode]:
    return _code_model(realm)._default_manager.filter(user_id=user.pk)


def _seal_context(realm: Realm, user_id: UUID, secret_id: UUID) -> SealContext:
    # The user is part of the context: a secret that is copied to another user's row cannot be opened there.
    table = _secrets(realm)._meta.db_table
    return SealContext(tenant=realm.owner(), table=table, column="secret_sealed", row=f"{user_id}/{secret_id}")


def _unsealed(realm: Realm, user: Account, row: TotpSecret) -> bytes:
    return unseal(bytes(row.secret_sealed), data_key=realm.data_key(), context=_seal_context(realm, user.pk, row.pk))


def unreadable_secrets(realm: Realm) -> list[UUID]:
    """Return the ids of the secrets that do not open with the realm's data key. Call it in the realm. Raises DataKeyLocked."""
    rows = _secrets(realm)._default_manager.select_related("user").iterator()
    return [row.pk for row in rows if not _is_readable(realm, row)]


def _is_readable(realm: Realm, row: TotpSecret) -> bool:
    try:
        _unsealed(realm, row.user, row)
    except SealBroken:
        return False
    return True
