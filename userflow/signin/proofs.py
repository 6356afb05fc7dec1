"""Proof in the request itself that its sender is the user of the access token. See `docs/security-model.md`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from identity_platform.api.errors import AccessTokenInvalid, NotAllowed, ValidationFailed
from identity_platform.hooks import Hook
from identity_platform.postgresql.row_errors import first_or
from userflow.accounts.models import Account
from userflow.accounts.principals import CLIENT, Principal
from userflow.accounts.realms import Realm
from userflow.accounts.session_models import Session
from userflow.credentials import attempts, passwords, tickets
from userflow.errors import (
    FactorNeeded,
    NoPasswordHere,
    NotSignedInByTicket,
    ProofTokenInvalid,
    ProofTooNew,
    WrongCurrentPassword,
)
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.issue import realm_of

CURRENT_PASSWORD: Final = "current_password"
PROOF_TOKEN: Final = "proof_token"
FACTOR_PROOFS: Final = ("code", "backup_code", "sms_code", "response")
PROOFS: Final = (CURRENT_PASSWORD, *FACTOR_PROOFS, PROOF_TOKEN)
PASSWORD_AMR: Final = ("pwd",)  # RFC 8176 section 2
# A request proves itself by a factor: the principal, the kind of `FACTOR_PROOFS` and the value. The function checks the
# factor as at sign-in and returns the amr that it proves, or raises.
factor_check: Final[Hook[[Principal, str, object], tuple[str, ...]]] = Hook()


def check_proof(*, principal: Principal, proof: Mapping[str, object], by_factor: bool = True) -> tuple[str, ...]:
    """Check the first of `PROOFS` that `proof` contains; return the authentication methods (RFC 8176) that it proves.

    A code or proof token is consumed, and a failure is counted as at sign-in, with the budget of the known caller. What was
    set up or changed after the last verification of the session proves nothing in it (`require_older`). The password alone is
    no proof of a user who has a factor: it would replace the factor, or make ten codes that stand for one. Only the step-up
    of a session from before all factors takes it, without `by_factor`. Call it after `require_assurance` and outside a
    transaction: what it counts must survive a rejection. Raises NotAllowed (a client), ValidationFailed (no proof),
    FactorNeeded, ProofTooNew, WrongCurrentPassword, NoPasswordHere, ProofTokenInvalid, HashersBusy, AttemptsLocked,
    TooManyFromAddress, and what the factors raise: InvalidCode, AttemptsExceeded, CodeExpired, PasskeyNotVerified.
    """
    if principal.kind == CLIENT:
        raise NotAllowed("Only a signed-in user can do this, not an application.")
    methods = principal.user.get("mfa_methods") or ()
    kind = kind_of_proof(proof)
    if kind == CURRENT_PASSWORD and by_factor and methods:
        raise FactorNeeded(methods, field=CURRENT_PASSWORD)
    if kind == CURRENT_PASSWORD:
        realm = realm_of(principal.kind)
        with realm.entered(principal.tenant_id):
            user = realm.users._default_manager.filter(pk=principal.id, active=True).first()
            if user is None or not user.password:
                raise NoPasswordHere
            require_older(realm, principal, user.password_changed_at)
            check_password(realm, user, str(proof[kind]), tenant_id=principal.tenant_id)
        return PASSWORD_AMR
    if kind == PROOF_TOKEN:
        verified = _use_proof_token(principal, str(proof[kind]))
        if by_factor and methods and is_password_only(verified):
            raise FactorNeeded(methods, field=PROOF_TOKEN)
        return verified
    # The app of the factors has registered one function.
    [verified] = factor_check.call(principal, kind, proof[kind])
    return verified


def prove_own_change(action: Action, *, principal: Principal, proof: Mapping[str, object] | None) -> None:
    """Require what the action table asks for a change of the caller's own sign-in: the assurance of the session, then the
    proof in the request. Raises InsufficientAuthentication and the errors of `check_proof`."""
    require_assurance(action, principal)
    check_proof(principal=principal, proof=proof or {})


def kind_of_proof(proof: Mapping[str, object]) -> str:
    """Return the first of `PROOFS` that the request contains. Raises ValidationFailed without one."""
    kind = next((name for name in PROOFS if proof.get(name) is not None), None)
    if kind is None:
        raise proof_missing()
    return kind


def require_older(realm: Realm, principal: Principal, since: datetime) -> None:
    """Raise ProofTooNew unless what proves was there, unchanged, when the session's user was last verified.

    A session makes no proof for itself: the holder of a stolen token, or of an unattended browser, could otherwise enroll a
    factor and use it. Once the user has proven something else, the verification is newer and the new factor counts. It is
    the time that decides and not the session that enrolled: one browser opens sessions for many applications. Call it in
    the realm. Raises AccessTokenInvalid as well.
    """
    if since >= session_of(realm, principal).auth_time:
        raise ProofTooNew


def session_of(realm: Realm, principal: Principal) -> Session:
    """Return the caller's session as stored: its token may be older than the last step-up. Raises AccessTokenInvalid."""
    if principal.session_id is None:
        raise AccessTokenInvalid
    sessions = realm.sessions._default_manager.filter(pk=principal.session_id, user_id=principal.id)
    return first_or(sessions.only("auth_time", "acr", "amr"), AccessTokenInvalid)


def is_password_only(verified: tuple[str, ...]) -> bool:
    """Return whether these methods (RFC 8176) are the password and nothing else."""
    return set(verified) <= set(PASSWORD_AMR)


def proof_missing() -> ValidationFailed:
    """Return the error of a request that needs a proof and has none."""
    return ValidationFailed(details={CURRENT_PASSWORD: [f"Send one of {', '.join(PROOFS)}."]})


def check_password(realm: Realm, user: Account, password: str, *, tenant_id: UUID | None) -> None:
    """Check the password of a user who has shown another proof; the attempt is counted before the comparison.

    It counts for the user alone: with the other proof the caller can guess no other password. Call it in the realm. Raises
    WrongCurrentPassword, AttemptsLocked, HashersBusy.
    """
    with attempts.counted(realm, user.pk, factor=attempts.PASSWORD, caller=attempts.SIGNED_IN):
        right = passwords.matches(password, user.password)
    if not right:
        realm.record("password.refused", target=("user", user.pk), outcome="refused", tenant_id=tenant_id)
        raise wrong_password()
    attempts.clear(realm, user.pk, factor=attempts.PASSWORD, caller=attempts.SIGNED_IN)


def wrong_password() -> WrongCurrentPassword:
    """Return the error of a wrong `current_password`."""
    return WrongCurrentPassword(details={CURRENT_PASSWORD: ["This is not your current password."]})


def _use_proof_token(principal: Principal, token: str) -> tuple[str, ...]:
    realm = realm_of(principal.kind)
    with realm.entered(principal.tenant_id):
        try:
            return tickets.consume_proof_token(realm, token, user_id=principal.id, session_id=principal.session_id)
        except NotSignedInByTicket as problem:
            attempts.count_wrong_secret()
            raise ProofTokenInvalid from problem
