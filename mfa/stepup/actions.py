"""Step-up: a signed-in user proves the session again, with a factor if the user has one (RFC 9470)."""

from collections.abc import Mapping
from typing import Final

from identity_platform.api.errors import NotAllowed, ValidationFailed
from mfa.webauthn.authentication import begin_own_authentication
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
