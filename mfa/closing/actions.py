"""Close one's own account."""

from collections.abc import Mapping

from identity_platform.api.errors import NotAllowed
from mfa.errors import AccountDeletionOff
from tenants.entering import lookup
from userflow.accounts.principals import END_USER, Principal
from userflow.endusers.actions import erase_end_user, reject_last_active
from userflow.sessions.assurance import Action, require_assurance
from userflow.signin.proofs import prove_own_change


def close_account(*, principal: Principal, proof: Mapping[str, object]) -> dict[str, int]:
    """Erase the calling end user; return the number of deleted records of each kind.

    Raises NotAllowed (any other caller), AccountDeletionOff (tenant setting `account_deletion`),
    InsufficientAuthentication, LastActiveUser, and the errors of `check_proof`.
    """
    if principal.kind != END_USER or principal.tenant_id is None:
        raise NotAllowed("Only an end user can delete their own account.")
    if lookup.find(principal.tenant_id).effective["account_deletion"] != "on":
        raise AccountDeletionOff
    require_assurance(Action.CLOSE_ACCOUNT, principal)
    reject_last_active(tenant_id=principal.tenant_id, user_id=principal.id)
    prove_own_change(Action.CLOSE_ACCOUNT, principal=principal, proof=proof)
    return erase_end_user(tenant_id=principal.tenant_id, user_id=principal.id, by=principal)
