"""Proving e-mail addresses over HTTP."""

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import TenantBusy, TenantSuspended
from userflow.admins.models import AdminUser
from userflow.email import actions, serializers
from userflow.email.undo import undo_email_change
from userflow.endusers.models import EndUser
from userflow.errors import (
    AdminNameTaken,
    EmailProofInvalid,
    EmailTaken,
    EmailUndoInvalid,
    MailBusy,
    TooManyFromAddress,
)
from userflow.permissions import Anyone

SENT = {"message": "If this address waits to be proven, a mail with a link and a code is on its way."}


class EmailProofViewSet(ApiViewSet):
    permission_classes = [Anyone]
    authentication_classes = []

    @endpoint(
        serializers.VerifyIn,
        returns={200: serializers.EmailVerifiedOut},
        refuses=[EmailProofInvalid, EmailTaken, AdminNameTaken, TenantSuspended, TenantBusy, TooManyFromAddress],
        token="none",
    )
    def verify(self, request: Request) -> Response:
        """Prove an address with the token, or with tenant, address and code, of the mail that was sent there."""
        asked = self.valid(serializers.VerifyIn)
        user: EndUser | AdminUser
        if "token" in asked:
            user = actions.verify_email_by_token(token=asked["token"])
        else:
            user = actions.verify_email_by_code(tenant_id=asked["tenant_id"], email=asked["email"], code=asked["code"])
        answer = {"message": "The address is proven.", "user_id": user.pk, "email": user.email, "verified": True}
        return Response(answer)

    @endpoint(
        serializers.UndoIn,
        returns={200: serializers.EmailUndoneOut},
        refuses=[EmailUndoInvalid, EmailTaken, AdminNameTaken, TenantSuspended, TenantBusy, TooManyFromAddress],
        token="none",
    )
    def undo(self, request: Request) -> Response:
        """Undo a change of address with the token of the mail that was sent to the old address.

        It restores the old address within seven days and ends every session of the user, an admin user's as well.
        """
        user = undo_email_change(**self.valid(serializers.UndoIn))
        message = "The address is restored and every session is ended: set a new password now."
        return Response({"message": message, "user_id": user.pk, "email": user.email})

    @endpoint(
        serializers.ResendIn,
        returns={200: serializers.ResentOut},
        refuses=[MailBusy, TooManyFromAddress],
        token="none",
    )
    def resend(self, request: Request) -> Response:
        """Send link and code again; the same answer whether or not there is anything to prove."""
        actions.resend_email_proof(**self.valid(serializers.ResendIn))
        return Response(SENT)
