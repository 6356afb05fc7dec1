"""Proof in the request itself that its sender is the user of the access token."""

from collections.abc import Mapping
from typing import Any, Final

from identity_platform.api.errors import ValidationFailed
from mfa.enrollment import Caller
from mfa.sms.actions import verify_sms_code
from mfa.totp.actions import verify_totp
from mfa.webauthn.authentication import finish_authentication
from userflow.passwords.actions import prove_password
from userflow.principals import Principal
from userflow.realms import END_USERS

PROOFS: Final = ("current_password", "code", "backup_code", "sms_code", "response")


def prove_end_user(*, principal: Principal, proof: Mapping[str, Any], user_agent: str = "") -> None:
    """Check the first of `PROOFS` that `proof` contains. A code is consumed and a failure is counted, as at sign-in.

    Raises ValidationFailed (no proof), WrongCurrentPassword, NoPasswordHere, InvalidCode, AttemptsExceeded, CodeExpired,
    PasskeyNotVerified, AttemptsLocked, TooManyFromAddress.
    """
    kind = next((name for name in PROOFS if proof.get(name) is not None), None)
    if kind is None:
        raise ValidationFailed(details={"current_password": [f"Send one of {', '.join(PROOFS)}."]})
    if kind == "current_password":
        prove_password(principal=principal, password=proof[kind])
        return
    assert principal.tenant_id is not None  # an end user always has a tenant
    user: dict[str, Any] = {
        "tenant_id": principal.tenant_id,
        "email": principal.user["email"],
        "caller": Caller(principal=principal, user_agent=user_agent),
    }
    if kind == "sms_code":
        verify_sms_code(**user, client_id=principal.client_id, code=proof[kind])
    elif kind == "response":
        finish_authentication(**user, realm=END_USERS, response=proof[kind])
    else:
        verify_totp(**user, realm=END_USERS, **{kind: proof[kind]})
