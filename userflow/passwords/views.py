from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.responses import MessageOut
from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import TenantBusy, TenantSuspended
from userflow.accounts.serializers import AdminEmailIn
from userflow.errors import PROOF_ERRORS, HashersBusy, ResetTokenInvalid, TooManyFromAddress, WeakPassword
from userflow.passwords import actions, serializers
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import SignedIn, principal_at
from userflow.sessions.view_sets import PublicViewSet
from userflow.signin.proof_fields import proof_in
from userflow.signin.serializers import EndedSessionsOut

SENT = {"message": "If this address belongs to a user, a mail with a link has been sent."}
RESETTING = [ResetTokenInvalid, WeakPassword, TooManyFromAddress, HashersBusy]


class PasswordViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(
        serializers.PasswordChangeIn,
        id="changePassword",
        returns={200: EndedSessionsOut},
        errors=[*PROOF_ERRORS, WeakPassword],
        assurance=Action.CHANGE_OWN_PASSWORD,
    )
    def change(self, request: Request) -> Response:
        """Change the caller's password.

        Needs a proof, such as `current_password`. All other sessions end and the user gets a mail.
        """
        fields = self.valid(serializers.PasswordChangeIn)
        ended = actions.change_password(
            principal=principal_at(request), new_password=fields["new_password"], proof=proof_in(fields)
        )
        return Response({"message": "The password is changed.", "sessions_ended": ended})


class ResetViewSet(PublicViewSet):
    @endpoint(
        AdminEmailIn,
        id="requestAdminPasswordReset",
        returns={200: MessageOut},
        errors=[TooManyFromAddress],
        token="none",
    )
    def admin_forgot(self, request: Request) -> Response:
        """Mail an admin user a link to set a new password.

        The link is valid for 30 minutes. The response is the same if there is no such user.
        """
        actions.ask_for_admin_reset(**self.valid(AdminEmailIn))
        return Response(SENT)

    @endpoint(
        serializers.ForgotPasswordIn,
        id="requestPasswordReset",
        returns={200: MessageOut},
        errors=[TooManyFromAddress],
        token="none",
    )
    def end_user_forgot(self, request: Request) -> Response:
        """Mail an end user a link to set a new password.

        The link is valid for 30 minutes. The response is the same if there is no such user.
        """
        actions.ask_for_end_user_reset(**self.valid(serializers.ForgotPasswordIn))
        return Response(SENT)

    @endpoint(
        serializers.AdminPasswordResetIn,
        id="resetAdminPassword",
        returns={200: EndedSessionsOut},
        errors=RESETTING,
        token="none",
    )
    def admin_reset(self, request: Request) -> Response:
        """Set an admin user's password with the token of a mail.

        All sessions of the user end. The token is used once.
        """
        reset = actions.reset_admin_password(**self.valid(serializers.AdminPasswordResetIn))
        return Response({"message": "The password is set. Sign in with it.", "sessions_ended": reset.sessions_ended})

    @endpoint(
        serializers.PasswordResetIn,
        id="resetPassword",
        returns={200: EndedSessionsOut},
        errors=[*RESETTING, TenantSuspended, TenantBusy],
        token="none",
    )
    def end_user_reset(self, request: Request) -> Response:
        """Set an end user's password with the token of a mail.

        All sessions of the user end. The token is used once.
        """
        reset = actions.reset_end_user_password(**self.valid(serializers.PasswordResetIn))
        return Response({"message": "The password is set. Sign in with it.", "sessions_ended": reset.sessions_ended})
