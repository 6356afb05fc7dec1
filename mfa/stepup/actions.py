"""Step-up: a signed-in user proves the session again, with a factor if the user has one (RFC 9470)."""

from collections.abc import Mapping
from typing import Final

from identity_platform.api.errors import AccessTokenInvalid, NotAllowed, ValidationFailed
from mfa.caller import Caller
from mfa.completion import SECOND_STEP_AMR
from mfa.errors import UnknownEmail
from mfa.sms.actions import AMR as SMS_AMR
from mfa.sms.actions import verify_sms_code
from mfa.totp import actions as totp
from mfa.totp import backup_codes
from mfa.webauthn.authentication import begin_own_authentication, verify_own_passkey
from userflow.accounts.principals import CLIENT, Principal
from userflow.errors import FactorNeeded
from userflow.sessions.issue import realm_of
from userflow.signin.proofs import CURRENT_PASSWORD, FACTOR_PROOFS, check_proof
from userflow.signin.step_up import StepUp, access_token_for, proof_token_for, raise_session

PASSWORD: Final = "password"
STEP_UP_PROOFS: Final = (PASSWORD, *FACTOR_PROOFS)

__all__ = ["STEP_UP_PROOFS", "StepUp", "access_token_for", "options_for_step_up", "proof_token_for", "step_up"]


def step_up(*, principal: Principal, proof: Mapping[str, object], user_agent: str = "") -> StepUp:
    """Check exactly one of `STEP_UP_PROOFS`, and store in the caller's session what it proves.

    A user who has a factor cannot step up with the password alone: a stolen token and the password would pass for the
    factor. Raises NotAllowed (a client), ValidationFailed (none or several proofs), FactorNeeded, the errors of
    `check_proof`, AccessTokenInvalid (the session has ended meanwhile).
    """
    if principal.kind == CLIENT:
        raise NotAllowed("An application has no session to step up.")
    sent = [name for name in STEP_UP_PROOFS if proof.get(name) is not None]
    if len(sent) != 1:
        raise ValidationFailed(details={PASSWORD: [f"Send exactly one of {', '.join(STEP_UP_PROOFS)}."]})
    [kind] = sent
    if kind == PASSWORD and principal.user["mfa_methods"]:
        # Before the password is compared: the response does not tell whether it is right.
        raise FactorNeeded(principal.user["mfa_methods"])
    named = {CURRENT_PASSWORD if kind == PASSWORD else kind: proof[kind]}
    verified = check_proof(principal=principal, proof=named, user_agent=user_agent)
    return raise_session(principal=principal, verified=verified)


def options_for_step_up(*, principal: Principal) -> dict[str, object]:
    """Request options for one use of the caller's passkeys within five minutes.

    Raises NotAllowed (a client), NoPasskey, NoRelyingParty (400), TooManyFromAddress (429).
    """
    if principal.kind == CLIENT:
        raise NotAllowed("An application has no session to step up.")
    return begin_own_authentication(realm=realm_of(principal.kind), tenant_id=principal.tenant_id, user_id=principal.id)


_AMR: Final[Mapping[str, tuple[str, ...]]] = {
    "code": totp.AMR,
    "backup_code": totp.AMR,
    "sms_code": SMS_AMR,
    "response": SECOND_STEP_AMR,
}


def check_factor_proof(
    sender: object, *, principal: Principal, kind: str, value: object, user_agent: str, **_: object
) -> tuple[str, ...]:
    """Receive `userflow.signals.factor_proof`: check the caller's own factor; return the amr that it proves.

    The code is consumed and the try is counted as at sign-in. Raises InvalidCode, AttemptsExceeded, CodeExpired,
    PasskeyNotVerified, ValidationFailed, AttemptsLocked, TooManyFromAddress.
    """
    caller = Caller(principal=principal, user_agent=user_agent)
    realm, tenant_id = realm_of(principal.kind), principal.tenant_id
    try:
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
