"""SMS over HTTP; end users only."""

from dataclasses import asdict

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import endpoint
from mfa.errors import NoPhone, PhoneRejected, PhoneTaken, SmsBudgetSpent, SmsReserved, SmsUnavailable
from mfa.sms import actions, serializers
from mfa.views import ENROLLMENT_ERRORS, TENANCY, FactorViewSet, enrollment_endpoint, verified_code, with_tokens
from userflow.errors import (
    PROOF_ERRORS,
    AttemptsExceeded,
    AttemptsLocked,
    CodeExpired,
    InvalidCode,
    NotSignedInByTicket,
)
from userflow.sessions.assurance import Action

SENDING = [PhoneRejected, SmsBudgetSpent, SmsReserved, SmsUnavailable]
CODE = [InvalidCode, AttemptsExceeded, CodeExpired, AttemptsLocked]


class SmsViewSet(FactorViewSet):
    @enrollment_endpoint(
        serializers.SmsBegin,
        id="beginSmsSetup",
        returns={200: serializers.SmsSentOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, *SENDING],
        assurance=Action.ADD_FACTOR,
    )
    def begin(self, request: Request) -> Response:
        """Send a code to a phone, to enroll it."""
        return self._sent(actions.begin_sms_setup(**self.arguments()))

    @enrollment_endpoint(
        serializers.SmsConfirm,
        id="confirmSmsSetup",
        returns={200: serializers.SmsConfirmedOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, *PROOF_ERRORS, PhoneRejected, PhoneTaken, NotSignedInByTicket],
        assurance=(Action.ADD_FACTOR, Action.REPLACE_FACTOR),
    )
    def confirm(self, request: Request) -> Response:
        """Enroll the phone with the code that it received.

        With `mfa_token` it completes the login that waits for a factor and returns its tokens.
        """
        done = actions.confirm_sms_setup(**self.arguments(proof=True, but="code"))
        body = {"message": "The phone is enrolled.", "phone_display": done.phone.display, "success": True}
        return with_tokens(body, done.tokens)

    @endpoint(
        serializers.SmsRequestCode,
        id="requestSmsCode",
        returns={200: serializers.SmsSentOut},
        errors=[*TENANCY, *SENDING, NoPhone, NotSignedInByTicket],
        token="optional",
        any_level=True,
    )
    def request_code(self, request: Request) -> Response:
        """Send a code to the enrolled phone."""
        return self._sent(actions.request_sms_code(**self.arguments()))

    @endpoint(
        serializers.SmsVerify,
        id="verifySmsCode",
        returns={200: serializers.SmsVerifiedOut},
        errors=[*TENANCY, *CODE, NotSignedInByTicket],
        token="optional",
    )
    def verify(self, request: Request) -> Response:
        """Check the code; with `mfa_token` it returns the login's tokens."""
        asked = self.arguments()
        done = actions.verify_sms_code(**asked)
        return verified_code(done, tenant_id=asked["tenant_id"])

    def _sent(self, sent: actions.CodeSent) -> Response:
        return Response({**asdict(sent), "message": "A code is on its way.", "success": True})
