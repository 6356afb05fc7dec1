"""Check the factors that a request sends as its proof, for `userflow.signin.proofs.check_proof`."""

from collections.abc import Mapping
from typing import Final

from identity_platform.api.errors import AccessTokenInvalid, ValidationFailed
from mfa.caller import Caller
from mfa.errors import UnknownEmail
from mfa.sms.actions import AMR as SMS_AMR
from mfa.sms.actions import verify_sms_code
from mfa.totp import actions as totp
from mfa.totp import backup_codes
from mfa.webauthn.authentication import verify_own_passkey
from mfa.webauthn.grants import SECOND_STEP_AMR
from userflow.accounts.principals import Principal
from userflow.sessions.issue import realm_of

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
