from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.fields import Text
from identity_platform.api.responses import NO_STORE
from identity_platform.api.views import ApiViewSet, endpoint
from mfa.errors import NoPasskey, NoRelyingParty, PasskeysElsewhere
from mfa.stepup import actions
from mfa.webauthn.serializers import PasskeyRequestOptionsOut
from tenants.errors import TenantBusy, TenantSuspended
from userflow.errors import (
    PROOF_ERRORS,
    InsufficientAuthentication,
    ProofTokenInvalid,
    TooManyFromAddress,
)
from userflow.sessions.permissions import SignedIn, principal_at
from userflow.sessions.sender_constraint import token_type_of
from userflow.signin.proof_fields import FactorProofFields
from userflow.signin.step_up import PROOF_TOKEN_SECONDS


class StepUpIn(FactorProofFields):
    """Exactly one of the fields."""

    password = Text(max_length=1024, required=False, help_text="Password of a user who has no second factor.")


class StepUpOut(serializers.Serializer[object]):
    access_token = serializers.CharField(help_text="JWT of the same session; its refresh token stays valid.")
    token_type = serializers.CharField()
    expires_in = serializers.IntegerField()
    proof_token = serializers.CharField(help_text="Proves one later request of this session.")
    proof_expires_in = serializers.IntegerField()
    acr = serializers.CharField(help_text="Assurance level of the session: aal1 or aal2.")
    amr = serializers.ListField(child=serializers.CharField())
    auth_time = serializers.IntegerField(help_text="When the user was verified, in seconds since 1970.")


PLACE = [TenantSuspended, TenantBusy]
STEP_UP_ERRORS = [error for error in PROOF_ERRORS if error not in (InsufficientAuthentication, ProofTokenInvalid)]


class StepUpViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(
        StepUpIn,
        id="stepUp",
        returns={200: StepUpOut},
        errors=[*PLACE, *STEP_UP_ERRORS],
        any_level=True,
    )
    def create(self, request: Request) -> Response:
        """Verify the user of a session again.

        Call it after 401 `insufficient_user_authentication` or before a sensitive call. Send exactly one proof: a
        second factor if the user has one, otherwise the password. What was enrolled or changed after the last
        verification of the session is no proof of it yet (`proof_too_new`). The new access token is of the same session.
        The proof token stands for a proof in one later request within five minutes.
        """
        caller = principal_at(request)
        raised = actions.step_up(principal=caller, proof=self.valid(StepUpIn))
        access_token, seconds = actions.access_token_for(principal=caller, raised=raised)
        return Response(
            {
                "access_token": access_token,
                "token_type": token_type_of(caller.grant.binding if caller.grant else ""),
                "expires_in": seconds,
                "proof_token": actions.proof_token_for(principal=caller, verified=raised.verified),
                "proof_expires_in": PROOF_TOKEN_SECONDS,
                "acr": raised.acr,
                "amr": list(raised.amr),
                "auth_time": int(raised.auth_time.timestamp()),
            },
            headers=NO_STORE,
        )

    @endpoint(
        id="beginPasskeyStepUp",
        returns={200: PasskeyRequestOptionsOut},
        errors=[*PLACE, NoPasskey, PasskeysElsewhere, NoRelyingParty, TooManyFromAddress],
        any_level=True,
    )
    def options_for_passkey(self, request: Request) -> Response:
        """Get options for a step-up with a passkey.

        Pass them to parseRequestOptionsFromJSON() and send the browser's result as `response` of the step-up.
        """
        return Response(actions.options_for_step_up(principal=principal_at(request)), headers=NO_STORE)
