"""WebAuthn over HTTP, in the order of the specification's table."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.responses import NO_STORE
from identity_platform.api.views import endpoint
from mfa.errors import (
    NoPasskey,
    NoProof,
    NoRelyingParty,
    NotFirstFactor,
    PasskeyNeedsPassword,
    PasskeyRejected,
    PasskeysElsewhere,
    TooManyPasskeys,
    UnknownEmail,
)
from mfa.serializers import AdminEnrollmentIn
from mfa.views import (
    ENROLLING_BY_TOKEN,
    ENROLLMENT_ERRORS,
    FactorViewSet,
    enrollment_endpoint,
    for_admins,
    with_tokens,
)
from mfa.webauthn import authentication, registration, serializers
from mfa.webauthn.registration import Enrolled
from mfa.webauthn.relying_party import related_origins
from tenants.addresses.hosts import tenant_at_host
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from userflow.accounts.realms import ADMINS
from userflow.accounts.serializers import AdminEmailIn
from userflow.errors import (
    AttemptsLocked,
    ClientNotAuthenticated,
    DirectSignInDisabled,
    EmailNotVerified,
    NotSignedInByTicket,
    PasskeyNotVerified,
    TooManyFromAddress,
)
from userflow.sessions.assurance import Action
from userflow.sessions.view_sets import PublicViewSet

PLACE = [TenantSuspended, TenantBusy, TenantMismatch, TooManyFromAddress]
BEGIN = [*ENROLLMENT_ERRORS, *PLACE, TooManyPasskeys, NoRelyingParty]
FINISH = [*ENROLLMENT_ERRORS, *PLACE, *ENROLLING_BY_TOKEN, PasskeyRejected, TooManyPasskeys, NoRelyingParty]
VERIFY = [
    *PLACE,
    NoRelyingParty,
    PasskeyNotVerified,
    PasskeyNeedsPassword,
    NotSignedInByTicket,
    EmailNotVerified,
    AttemptsLocked,
]
PUBLIC_FOR_FIVE_MINUTES = {"Cache-Control": "public, max-age=300"}


def enrolled(done: Enrolled) -> Response:
    """Return the response of a finished registration."""
    fields = {"success": True, "message": "The passkey is enrolled.", "credential_id": done.credential_id}
    return with_tokens(fields, done.signed_in)


class EndUserPasskeyViewSet(FactorViewSet):
    @enrollment_endpoint(
        serializers.PasskeyRegistrationIn,
        id="beginPasskeyRegistration",
        returns={200: serializers.PasskeyCreationOptionsOut},
        errors=[UnknownEmail, UnknownTenant, *BEGIN],
        assurance=(Action.FIRST_FACTOR, Action.ADD_FACTOR),
    )
    def begin_registration(self, request: Request) -> Response:
        """Get options for a new passkey.

        Pass them to parseCreationOptionsFromJSON(). Needs a proof of the user: an access token, an enrollment ticket,
        or a registration or sign-in in the last minutes.
        """
        return Response(registration.begin_registration(realm=self.realm, **self.arguments()), headers=NO_STORE)

    @enrollment_endpoint(
        serializers.PasskeyIn,
        id="finishPasskeyRegistration",
        returns={200: serializers.EnrolledPasskeyOut},
        errors=[
            UnknownEmail,
            UnknownTenant,
            *FINISH,
            NotSignedInByTicket,
            ClientNotAuthenticated,
            DirectSignInDisabled,
        ],
        assurance=(Action.FIRST_FACTOR, Action.ADD_FACTOR),
    )
    def finish_registration(self, request: Request) -> Response:
        """Store a new passkey.

        Needs the same proof as getting its options; with an access token also one in the body: the password for the
        first factor, a factor for a further one. With `mfa_token` it completes the sign-in that waits for a factor
        and returns its tokens.
        """
        return enrolled(registration.finish_registration(realm=self.realm, **self.arguments(with_proof=True)))

    @endpoint(
        serializers.PasskeyAuthenticationIn,
        id="beginPasskeyAuthentication",
        returns={200: serializers.PasskeyRequestOptionsOut},
        errors=[UnknownEmail, UnknownTenant, NoPasskey, PasskeysElsewhere, NoRelyingParty, *PLACE],
        token="optional",
    )
    def begin_authentication(self, request: Request) -> Response:
        """Get options for using a passkey.

        Pass them to parseRequestOptionsFromJSON(). Without `email` a passkey sign-in begins: the authenticator offers
        the passkeys that it holds.
        """
        arguments = self.arguments()
        del arguments["caller"]  # anyone may begin; a token that is sent has been checked
        return Response(authentication.begin_authentication(realm=self.realm, **arguments), headers=NO_STORE)

    @endpoint(
        serializers.PasskeyAssertionIn,
        id="finishPasskeyAuthentication",
        returns={200: serializers.PasskeyVerificationOut},
        errors=[*VERIFY, ClientNotAuthenticated, DirectSignInDisabled],
        token="optional",
    )
    def finish_authentication(self, request: Request) -> Response:
        """Verify the use of a passkey.

        With `mfa_token` it completes that sign-in; in a passkey sign-in it is the only step. Both return tokens. Every
        failed check returns the same 401.
        """
        # The specification has no 404 here: an unknown tenant is this error for every caller, operators included.
        arguments = self.arguments(unknown_tenant=PasskeyNotVerified)
        done = authentication.finish_authentication(realm=self.realm, **arguments)
        return with_tokens({"success": True, "user_id": done.user.pk}, done.signed_in)


class AdminPasskeyViewSet(EndUserPasskeyViewSet):
    realm = ADMINS

    begin_registration = for_admins(
        EndUserPasskeyViewSet.begin_registration,
        "beginAdminPasskeyRegistration",
        "Get options for an admin user's new passkey.\n"
        "Pass them to parseCreationOptionsFromJSON(). Needs a proof of the user: an access token, an enrollment "
        "ticket, or a sign-in in the last minutes.",
        AdminEnrollmentIn,
    )
    finish_registration = for_admins(
        EndUserPasskeyViewSet.finish_registration,
        "finishAdminPasskeyRegistration",
        "Store an admin user's new passkey.\n"
        "Needs the same proof as getting its options; with an access token also one in the body: the password for the "
        "first factor, a factor for a further one. With `mfa_token` it completes the sign-in that waits for a factor "
        "and returns its tokens.",
        serializers.AdminPasskeyIn,
    )
    begin_authentication = for_admins(
        EndUserPasskeyViewSet.begin_authentication,
        "beginAdminPasskeyAuthentication",
        "Get options for using an admin user's passkey.\nPass them to parseRequestOptionsFromJSON().",
        AdminEmailIn,
    )
    finish_authentication = for_admins(
        EndUserPasskeyViewSet.finish_authentication,
        "finishAdminPasskeyAuthentication",
        "Verify the use of an admin user's passkey.\n"
        "With `mfa_token` it completes that sign-in and returns its tokens. Every failed check returns the same 401.",
        serializers.AdminPasskeyAssertionIn,
    )


class PasskeySignUpViewSet(FactorViewSet):
    """The general registration, which signs the user in."""

    @enrollment_endpoint(
        serializers.PasskeySignUpIn,
        id="finishPasskeySignUp",
        returns={200: serializers.PasskeySignUpOut},
        errors=[*FINISH, ClientNotAuthenticated, DirectSignInDisabled, NotFirstFactor],
        assurance=Action.FIRST_FACTOR,
    )
    def finish_registration(self, request: Request) -> Response:
        """Store a new passkey and sign the user in.

        The passkey must be the first factor, and the authenticator must have verified the user. With an access token the
        body needs a proof, which is the password.
        """
        arguments = self.arguments(with_proof=True, unknown_tenant=NoProof)
        return enrolled(registration.finish_registration_and_sign_in(**arguments))


class RelatedOriginsViewSet(PublicViewSet):
    @endpoint(
        id="getRelatedOrigins",
        query=serializers.RelatedOriginsQuery,
        returns={200: serializers.RelatedOriginsOut},
        errors=[UnknownTenant],
        token="none",
    )
    def retrieve(self, request: Request) -> Response:
        """Get the origins that may use the passkeys of this domain.

        For browsers (WebAuthn Level 3 section 5.11).
        """
        tenant_id: UUID | None = self.valid_query(serializers.RelatedOriginsQuery).get("tenant_id")
        tenant = tenant_at_host(request._request)
        tenant_id = tenant.tenant_id if tenant else tenant_id
        domain = request.META.get("HTTP_HOST", "").partition(":")[0].lower()
        origins = related_origins(domain=domain, tenant_id=tenant_id)
        return Response({"origins": origins}, headers=PUBLIC_FOR_FIVE_MINUTES)
