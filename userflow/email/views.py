from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import NotAllowed
from identity_platform.api.responses import MessageOut
from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import TenantBusy, TenantSuspended
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.principals import Principal
from userflow.email import actions, serializers
from userflow.email.undo import undo_email_change
from userflow.errors import (
    AdminNameTaken,
    AttemptsLocked,
    EmailProofInvalid,
    EmailTaken,
    EmailUndoInvalid,
    HashersBusy,
    NoPasswordHere,
    NotSignedInByTicket,
    TooManyFromAddress,
    WrongCurrentPassword,
)
from userflow.sessions.permissions import Anyone
from userflow.sessions.view_sets import PublicViewSet
from userflow.signin.views import TICKET_HEADER

SENT = {"message": "If this address needs verification, a mail with a link and a code has been sent."}


class EmailVerificationViewSet(ApiViewSet):
    permission_classes = [Anyone]

    @endpoint(
        serializers.VerifyEmailIn,
        id="verifyEmail",
        returns={200: serializers.VerifiedEmailOut},
        errors=[
            EmailProofInvalid,
            EmailTaken,
            AdminNameTaken,
            NotAllowed,
            NotSignedInByTicket,
            WrongCurrentPassword,
            NoPasswordHere,
            AttemptsLocked,
            HashersBusy,
            TenantSuspended,
            TenantBusy,
            TooManyFromAddress,
        ],
        token="optional",
        any_level=True,
        headers={TICKET_HEADER: "Enrollment ticket of the user who has this address."},
    )
    def verify(self, request: Request) -> Response:
        """Verify an e-mail address.

        With the token of the mail, or with tenant, address and code. A registration that waits for this becomes the
        user, with the password that was sent with it; the other registrations of the address end. The first
        verification of a user's address ends the sessions and removes the factors from before, unless the request shows
        that the user sends it: by the user's access token, an enrollment ticket or `current_password`.
        """
        fields = self.valid(serializers.VerifyEmailIn)
        principal = request.user if isinstance(request.user, Principal) else None
        registrant = actions.Registrant(
            principal, request.META.get("HTTP_X_ENROLLMENT_TICKET"), fields.get("current_password")
        )
        user: EndUser | AdminUser
        if "token" in fields:
            user = actions.verify_email_by_token(token=fields["token"], registrant=registrant)
        else:
            address = {name: fields[name] for name in ("tenant_id", "email", "code")}
            user = actions.verify_email_by_code(**address, user_id=fields.get("user_id"), registrant=registrant)
        body = {"message": "The address is verified.", "user_id": user.pk, "email": user.email, "verified": True}
        return Response(body)


class EmailProofViewSet(PublicViewSet):
    @endpoint(
        serializers.UndoEmailChangeIn,
        id="undoEmailChange",
        returns={200: serializers.UndoneEmailChangeOut},
        errors=[EmailUndoInvalid, EmailTaken, AdminNameTaken, TenantSuspended, TenantBusy, TooManyFromAddress],
        token="none",
    )
    def undo(self, request: Request) -> Response:
        """Undo a change of e-mail address.

        With the token of the mail to the old address, within seven days. It restores the old address and ends every
        session of the user.
        """
        user = undo_email_change(**self.valid(serializers.UndoEmailChangeIn))
        message = "The address is restored and all sessions have ended. Set a new password now."
        return Response({"message": message, "user_id": user.pk, "email": user.email})

    @endpoint(
        serializers.ResendEmailVerificationIn,
        id="resendEmailVerification",
        returns={200: MessageOut},
        errors=[TooManyFromAddress, TenantBusy],
        token="none",
    )
    def resend(self, request: Request) -> Response:
        """Send the mail that verifies an address again.

        Link and code that are valid stay the same. The response is the same if there is nothing to verify.
        """
        actions.resend_email_proof(**self.valid(serializers.ResendEmailVerificationIn))
        return Response(SENT)
