"""SMS over HTTP; end users only."""

from dataclasses import asdict

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import endpoint
from mfa.enrollment import ENROLLING
from mfa.errors import NoPhone, PhoneRejected, PhoneTaken, SmsBudgetSpent, SmsReserved, SmsUnavailable
from mfa.sms import actions, serializers
from mfa.views import (
    ENROLLING_BY_TOKEN,
    ENROLLMENT_ERRORS,
    TENANCY,
    FactorViewSet,
    enrollment_endpoint,
    verified_code,
    with_tokens,
)
from userflow.errors import (
    AttemptsExceeded,
    AttemptsLocked,
    ClientNotAuthenticated,
    CodeExpired,
    DirectSignInDisabled,
    InvalidCode,
    NotSignedInByTicket,
)

SENDING = [PhoneRejected, SmsBudgetSpent, SmsReserved, SmsUnavailable]
CODE = [InvalidCode, AttemptsExceeded, CodeExpired, AttemptsLocked]


class SmsViewSet(FactorViewSet):
    @enrollment_endpoint(
        serializers.SmsSetup,
        id="beginSmsSetup",
        returns={200: serializers.SentSmsCodeOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, *SENDING],
        assurance=ENROLLING,
    )
    def begin(self, request: Request) -> Response:
        """Send a code to a phone to enroll it.

        The code is valid for five minutes. Needs a proof of the user: an access token, an enrollment ticket, or a
        registration or sign-in in the last minutes.
        """
        return self._sent(actions.begin_sms_setup(**self.arguments()))

    @enrollment_endpoint(
        serializers.SmsConfirm,
        id="confirmSmsSetup",
        returns={200: serializers.SmsConfirmationOut},
        errors=[
            *TENANCY,
            *ENROLLMENT_ERRORS,
            *ENROLLING_BY_TOKEN,
            PhoneRejected,
            PhoneTaken,
            NotSignedInByTicket,
            ClientNotAuthenticated,
            DirectSignInDisabled,
        ],
        assurance=ENROLLING,
    )
    def confirm(self, request: Request) -> Response:
        """Enroll a phone with the code that it received.

        With an access token the body needs a proof: the password for the first factor, a factor for a further one. With
        `mfa_token` it completes the sign-in that waits for a factor and returns its tokens.
        """
        done = actions.confirm_sms_setup(**self.arguments(with_proof=True, but="code"))
        body = {"message": "The phone is enrolled.", "phone_display": done.phone.display, "success": True}
        return with_tokens(body, done.signed_in)

    @endpoint(
        serializers.SmsCode,
        id="requestSmsCode",
        returns={200: serializers.SentSmsCodeOut},
        errors=[*TENANCY, *SENDING, NoPhone, NotSignedInByTicket],
        token="optional",
        any_level=True,
    )
    def request_code(self, request: Request) -> Response:
        """Send a code to the enrolled phone.

        The code is valid for five minutes. At most one message a minute; more return 429.
        """
        return self._sent(actions.request_sms_code(**self.arguments()))

    @endpoint(
        serializers.SmsVerify,
        id="verifySmsCode",
        returns={200: serializers.SmsVerificationOut},
        errors=[*TENANCY, *CODE, NotSignedInByTicket, ClientNotAuthenticated, DirectSignInDisabled],
        token="optional",
    )
    def verify(self, request: Request) -> Response:
        """Check a code from a text message.

        With `mfa_token` it completes that sign-in and returns its tokens.
        """
        arguments = self.arguments()
        done = actions.verify_sms_code(**arguments)
        return verified_code(done, tenant_id=arguments["tenant_id"])

    def _sent(self, sent: actions.CodeSent) -> Response:
        return Response({**asdict(sent), "message": "A code is on its way.", "success": True})
