"""Step-up: a signed-in user proves the session again, with a factor if the user has one (RFC 9470)."""

from collections.abc import Mapping
from typing import Final

from identity_platform.api.errors import AccessTokenInvalid, NotAllowed, ValidationFailed
from identity_platform.postgresql.row_errors import first_or
from mfa import factors
from mfa.completion import SECOND_STEP_AMR
from mfa.errors import UnknownEmail
from mfa.sms.actions import AMR as SMS_AMR
from mfa.sms.actions import verify_sms_code
from mfa.totp import actions as totp
from mfa.totp import backup_codes
from mfa.webauthn import responses
from mfa.webauthn.authentication import begin_own_authentication, verify_own_passkey
from mfa.webauthn.responses import CeremonyFailed
from tenants.states import Purpose
from userflow.accounts.principals import CLIENT, Principal
from userflow.accounts.session_policy import AAL1
from userflow.errors import FactorNeeded
from userflow.sessions.assurance import reject_third_party
from userflow.sessions.issue import realm_of
from userflow.signin.caller import Caller
from userflow.signin.proofs import (
    CURRENT_PASSWORD,
    FACTOR_PROOFS,
    PASSWORD_AMR,
    check_proof,
    require_older,
    session_of,
)
from userflow.signin.step_up import StepUp, access_token_for, proof_token_for, raise_session

PASSWORD: Final = "password"
STEP_UP_PROOFS: Final = (PASSWORD, *FACTOR_PROOFS)

__all__ = [
    "STEP_UP_PROOFS",
    "StepUp",
    "access_token_for",
    "options_for_step_up",
    "proof_token_for",
    "step_up",
    "step_up_methods",
]


def step_up(*, principal: Principal, proof: Mapping[str, object]) -> StepUp:
    """Check exactly one of `STEP_UP_PROOFS`, and store in the caller's session what it proves.

    A user who has a factor cannot step up with the password alone: a stolen token and the password would pass for the
    factor. Only a session of one factor takes the password first: if it is older than all factors of its user, or if the user
    came in by a passkey that is a second step only. That proves no factor, but they count from then on. Raises NotAllowed
    (a client, a third-party application),
    ValidationFailed (none or several proofs), FactorNeeded, the errors of `check_proof`, AccessTokenInvalid (the session has
    ended meanwhile).
    """
    _require_own_session(principal)
    sent = [name for name in STEP_UP_PROOFS if proof.get(name) is not None]
    if len(sent) != 1:
        raise ValidationFailed(details={PASSWORD: [f"Send exactly one of {', '.join(STEP_UP_PROOFS)}."]})
    [kind] = sent
    password_first = kind == PASSWORD and bool(principal.user["mfa_methods"])
    if password_first and PASSWORD not in step_up_methods(principal=principal):
        # Before the password is compared: the response does not tell whether it is right.
        raise FactorNeeded(principal.user["mfa_methods"])
    own_proof = {CURRENT_PASSWORD if kind == PASSWORD else kind: proof[kind]}
    verified = check_proof(principal=principal, proof=own_proof, by_factor=not password_first)
    return raise_session(principal=principal, verified=verified, password_first=password_first)


def step_up_methods(*, principal: Principal) -> list[str]:
    """Return the methods with which the user can step up this session now, strongest first; `password` is one of them.

    Those that are newer than the last verification of the session are left out (`proofs.require_older`). None is left where
    only a new sign-in helps. Raises AccessTokenInvalid.
    """
    realm = realm_of(principal.kind)
    with realm.entered(principal.tenant_id, Purpose.SIGN_IN):
        session = session_of(realm, principal)
        user = first_or(realm.users._default_manager.filter(pk=principal.id, active=True), AccessTokenInvalid)
        older = factors.methods_of(user, before=session.auth_time)
        has_proven_password = PASSWORD_AMR[0] in session.amr
        if (older and has_proven_password) or (user.mfa_methods and session.acr != AAL1):
            return older
        return [*older, PASSWORD] if user.password and user.password_changed_at < session.auth_time else older


def _require_own_session(principal: Principal) -> None:
    if principal.kind == CLIENT:
        raise NotAllowed("An application has no session to step up.")
    reject_third_party(principal)


def options_for_step_up(*, principal: Principal) -> dict[str, object]:
    """Request options for one use of the caller's passkeys within five minutes.

    Raises NotAllowed (a client, a third-party application), NoPasskey, NoRelyingParty (400), TooManyFromAddress (429).
    """
    _require_own_session(principal)
    return begin_own_authentication(realm=realm_of(principal.kind), tenant_id=principal.tenant_id, user_id=principal.id)


_AMR: Final[Mapping[str, tuple[str, ...]]] = {
    "code": totp.AMR,
    "backup_code": totp.AMR,
    "sms_code": SMS_AMR,
    "response": SECOND_STEP_AMR,
}


def check_factor_proof(principal: Principal, kind: str, value: object) -> tuple[str, ...]:
    """Check the caller's own factor, for `userflow.signin.proofs`; return the amr that it proves.

    The code is consumed and the try is counted as at sign-in. A factor that is newer than the last verification of the
    session is rejected before that. Raises ProofTooNew, InvalidCode, AttemptsExceeded, CodeExpired, PasskeyNotVerified,
    ValidationFailed, AttemptsLocked, TooManyFromAddress.
    """
    caller = Caller(principal=principal)
    realm, tenant_id = realm_of(principal.kind), principal.tenant_id
    try:
        _require_older_factor(principal, kind, value)
        if isinstance(value, Mapping):
            verify_own_passkey(realm=realm, tenant_id=tenant_id, response=value, caller=caller)
        elif kind == "code":
            totp.verify_totp(realm=realm, tenant_id=tenant_id, email=None, caller=caller, code=str(value))
        elif kind == "backup_code":
            code = _normalised(str(value))
            totp.verify_totp(realm=realm, tenant_id=tenant_id, email=None, caller=caller, backup_code=code)
        else:
            _check_sms_code(principal, str(value), caller)
    except UnknownEmail as gone:  # erased or deactivated since the token was checked
        raise AccessTokenInvalid from gone
    return _AMR[kind]


_METHODS: Final[Mapping[str, str]] = {
    "code": factors.TOTP,
    "backup_code": factors.BACKUP_CODE,
    "sms_code": factors.SMS,
    "response": factors.WEBAUTHN,
}


def _require_older_factor(principal: Principal, kind: str, value: object) -> None:
    """Raise ProofTooNew if the factor is newer than the last verification of the session. Raises UnknownEmail as well.

    What is not enrolled at all is rejected by its own check, which counts the attempt.
    """
    which: dict[str, object] = {}
    if isinstance(value, Mapping):
        try:
            which["credential_id"] = responses.credential_id_of(value)
        except CeremonyFailed:
            return
    realm = realm_of(principal.kind)
    with realm.entered(principal.tenant_id, Purpose.SIGN_IN):
        since = factors.enrolled_since(realm.users(id=principal.id), _METHODS[kind], **which)
        if since is not None:
            require_older(realm, principal, since)


def _normalised(value: str) -> str:
    code = backup_codes.normalised(value)
    if code is None:
        raise ValidationFailed(details={"backup_code": ["Send a backup code as xxxx-xxxx-xxxx-xxxx."]})
    return code


def _check_sms_code(principal: Principal, code: str, caller: Caller) -> None:
    if principal.is_admin or principal.tenant_id is None:
        raise ValidationFailed(details={"sms_code": ["Admin users have no codes by SMS."]})
    verify_sms_code(
        tenant_id=principal.tenant_id,
        client_id=principal.client_id,
        email=principal.user["email"],
        code=code,
        caller=caller,
    )
