"""Closing one's own account over HTTP."""

from collections.abc import Mapping

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import NotAllowed
from identity_platform.api.views import ApiViewSet, endpoint
from mfa.errors import AccountDeletionOff
from tenants import lookup
from tenants.errors import TenantBusy, TenantSuspended
from userflow.accounts.principals import END_USER, Principal
from userflow.endusers.actions import erase_end_user
from userflow.endusers.serializers import ErasedOut
from userflow.errors import PROOF_ERRORS, LastActiveUser, UnknownUser
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import SignedIn, principal_at
from userflow.signin.proof_fields import ProofFields, proof_of
from userflow.signin.proofs import prove_own_change


def close_account(*, principal: Principal, proof: Mapping[str, object], user_agent: str = "") -> dict[str, int]:
    """Erase the calling end user; return the number of deleted records of each kind.

    Raises NotAllowed (any other caller), AccountDeletionOff (tenant setting `account_deletion`),
    InsufficientAuthentication, LastActiveUser, and the errors of `check_proof`.
    """
    if principal.kind != END_USER or principal.tenant_id is None:
        raise NotAllowed("Only an end user can delete their own account.")
    if lookup.find(principal.tenant_id).effective["account_deletion"] != "on":
        raise AccountDeletionOff
    prove_own_change(Action.CLOSE_ACCOUNT, principal=principal, proof=proof, user_agent=user_agent)
    return erase_end_user(tenant_id=principal.tenant_id, user_id=principal.id, by=principal)


class AccountClosingIn(ProofFields):
    """One of the fields; the first that is present counts."""


class AccountClosingViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(
        AccountClosingIn,
        returns={200: ErasedOut},
        errors=[AccountDeletionOff, *PROOF_ERRORS, LastActiveUser, UnknownUser, TenantSuspended, TenantBusy],
        assurance=Action.CLOSE_ACCOUNT,
    )
    def create(self, request: Request) -> Response:
        """Delete the caller's own account and everything bound to it; for end users, where the tenant allows it.

        Needs a sign-in that is at most 15 minutes old, with the second factor if there is one, and a proof in the body:
        the password, a code or a passkey. The tenant setting is `account_deletion`.
        """
        caller = principal_at(request)
        asked = self.valid(AccountClosingIn)
        deleted = close_account(principal=caller, **proof_of(request, asked))
        return Response({"message": "Your account is deleted.", "user_id": caller.id, "deleted": deleted})
