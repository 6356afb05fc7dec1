from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from mfa.closing import actions
from mfa.errors import AccountDeletionOff
from tenants.errors import TenantBusy, TenantSuspended
from userflow.endusers.serializers import ErasedUserOut
from userflow.errors import PROOF_ERRORS, LastActiveUser, UnknownUser
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import SignedIn, principal_at
from userflow.signin.proof_fields import ProofIn, proof_in


class AccountClosingViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(
        ProofIn,
        id="deleteAccount",
        returns={200: ErasedUserOut},
        errors=[AccountDeletionOff, *PROOF_ERRORS, LastActiveUser, UnknownUser, TenantSuspended, TenantBusy],
        assurance=Action.CLOSE_ACCOUNT,
    )
    def create(self, request: Request) -> Response:
        """Delete the caller's own account.

        For end users, if the tenant setting `account_deletion` allows it. Everything bound to the user is deleted.
        Needs a proof in the body: the password, a code or a passkey.
        """
        caller = principal_at(request)
        fields = self.valid(ProofIn)
        deleted = actions.close_account(principal=caller, proof=proof_in(fields))
        return Response({"message": "Your account is deleted.", "user_id": caller.id, "deleted": deleted})
