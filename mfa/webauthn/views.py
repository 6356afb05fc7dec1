"""WebAuthn over HTTP, in the order of the specification's table."""

from dataclasses import replace
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import ApiError
from identity_platform.api.views import ApiViewSet, endpoint
from mfa.caller import Caller
from mfa.errors import (
    NoPasskey,
    NoProof,
    NoRelyingParty,
    NotFirstFactor,
    PasskeyNeedsPassword,
    PasskeyRejected,
    TooManyPasskeys,
    UnknownEmail,
)
from mfa.views import ENROLLMENT_ERRORS, NO_STORE, PROOFS, FactorViewSet, with_tokens
from mfa.webauthn import authentication, registration, serializers
from mfa.webauthn.authentication import Verified
from mfa.webauthn.registration import Enrolled
from mfa.webauthn.relying_party import related_origins
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from userflow.accounts.realms import ADMINS, END_USERS
from userflow.errors import (
    AttemptsLocked,
    ClientNotAuthenticated,
    EmailNotVerified,
    NotSignedInByTicket,
    PasskeyNotVerified,
)
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import Anyone

PLACE = [TenantSuspended, TenantBusy, TenantMismatch]
BEGIN = [*ENROLLMENT_ERRORS, *PLACE, TooManyPasskeys, NoRelyingParty]
FINISH = [*ENROLLMENT_ERRORS, *PLACE, PasskeyRejected, TooManyPasskeys]
VERIFY = [*PLACE, PasskeyNotVerified, PasskeyNeedsPassword, NotSignedInByTicket, EmailNotVerified, AttemptsLocked]
PUBLIC_FOR_FIVE_MINUTES = {"Cache-Control": "public, max-age=300"}


def enrolled(done: Enrolled) -> Response:
    """Return the response of a finished registration."""
    fields = {"success": True, "message": "The passkey is enrolled.", "credential_id": done.credential_id}
    return with_tokens(fields, done.tokens)


def verified(done: Verified) -> Response:
    """Return the response of a finished authentication."""
    return with_tokens({"success": True, "user_id": done.user.pk}, done.tokens)


class PasskeyViewSet(FactorViewSet):
    """Endpoints that have no 404 in the specification."""

    def caller_or(self, error: type[ApiError], tenant_id: UUID, ticket: str | None = None) -> Caller:
        """Return the proofs of this request. An unknown tenant is this error for every caller, operators included."""
        try:
            return self.caller(tenant_id, ticket)
        except UnknownTenant as problem:
            raise error from problem


class AdminPasskeyViewSet(FactorViewSet):
    """Passkeys of admin users, in the global database."""

    @endpoint(
        serializers.AdminRegistrationIn,
        returns={200: serializers.CreationOptionsOut},
        errors=[UnknownEmail, *BEGIN],
        token="optional",
        any_level=True,
        headers=PROOFS,
        assurance=Action.ADD_FACTOR,
    )
    def begin_registration(self, request: Request) -> Response:
        """Options for a new passkey, for parseCreationOptionsFromJSON()."""
        asked = self.valid(serializers.AdminRegistrationIn)
        caller = self.caller(ticket=asked.pop("enrollment_ticket", None))
        options = registration.begin_registration(realm=ADMINS, tenant_id=None, caller=caller, **asked)
        return Response(options, headers=NO_STORE)

    @endpoint(
        serializers.AdminPasskeyIn,
        returns={200: serializers.EnrolledOut},
        errors=[UnknownEmail, *FINISH, NotSignedInByTicket],
        token="optional",
        any_level=True,
        headers=PROOFS,
        assurance=Action.ADD_FACTOR,
    )
    def finish_registration(self, request: Request) -> Response:
        """Store the new passkey; with `mfa_token` it completes the login that waits for a factor."""
        asked = self.valid(serializers.AdminPasskeyIn)
        asked["response"] = asked.pop("credential")
        caller = self.caller(ticket=asked.pop("enrollment_ticket", None))
        done = registration.finish_registration(realm=ADMINS, tenant_id=None, caller=caller, **asked)
        return enrolled(done)

    @endpoint(
        serializers.AdminNamedIn,
        returns={200: serializers.RequestOptionsOut},
        errors=[UnknownEmail, NoPasskey, NoRelyingParty, *PLACE],
        token="optional",
    )
    def begin_authentication(self, request: Request) -> Response:
        """Options for the use of a passkey, for parseRequestOptionsFromJSON()."""
        asked = self.valid(serializers.AdminNamedIn)
        options = authentication.begin_authentication(realm=ADMINS, tenant_id=None, **asked)
        return Response(options, headers=NO_STORE)

    @endpoint(serializers.AdminAssertionIn, returns={200: serializers.VerifiedOut}, errors=VERIFY, token="optional")
    def finish_authentication(self, request: Request) -> Response:
        """Verify the use of a passkey; with `mfa_token` it completes that login and returns its tokens."""
        asked = self.valid(serializers.AdminAssertionIn)
        return verified(
            authentication.finish_authentication(realm=ADMINS, tenant_id=None, caller=self.caller(), **asked)
        )


class EndUserPasskeyViewSet(PasskeyViewSet):
    """Passkeys of end users, in the tenant's database."""

    @endpoint(
        serializers.EndUserRegistrationIn,
        returns={200: serializers.CreationOptionsOut},
        errors=[UnknownEmail, UnknownTenant, *BEGIN],
        token="optional",
        any_level=True,
        headers=PROOFS,
        assurance=Action.ADD_FACTOR,
    )
    def begin_registration(self, request: Request) -> Response:
        """Options for a new passkey, for parseCreationOptionsFromJSON()."""
        asked = self.valid(serializers.EndUserRegistrationIn)
        caller = self.caller(asked["tenant_id"], asked.pop("enrollment_ticket", None))
        options = registration.begin_registration(realm=END_USERS, caller=caller, **asked)
        return Response(options, headers=NO_STORE)

    @endpoint(
        serializers.EndUserPasskeyIn,
        returns={200: serializers.EnrolledOut},
        errors=[UnknownEmail, UnknownTenant, *FINISH, NotSignedInByTicket, EmailNotVerified],
        token="optional",
        any_level=True,
        headers=PROOFS,
        assurance=Action.ADD_FACTOR,
    )
    def finish_registration(self, request: Request) -> Response:
        """Store the new passkey; with `mfa_token` it completes the login that waits for a factor."""
        asked = self.valid(serializers.EndUserPasskeyIn)
        asked["response"] = asked.pop("credential")
        caller = self.caller(asked["tenant_id"], asked.pop("enrollment_ticket", None))
        done = registration.finish_registration(realm=END_USERS, caller=caller, **asked)
        return enrolled(done)

    @endpoint(
        serializers.EndUserBeginIn,
        returns={200: serializers.RequestOptionsOut},
        errors=[UnknownEmail, UnknownTenant, NoPasskey, NoRelyingParty, *PLACE],
        token="optional",
    )
    def begin_authentication(self, request: Request) -> Response:
        """Options for the use of a passkey, for parseRequestOptionsFromJSON().

        Without `email` a passkey sign-in begins: the authenticator offers its discoverable credentials.
        """
        asked = self.valid(serializers.EndUserBeginIn)
        self.caller(asked["tenant_id"])
        options = authentication.begin_authentication(
            realm=END_USERS,
            tenant_id=asked["tenant_id"],
            email=asked.get("email"),
            client_id=asked.get("client_id"),
        )
        return Response(options, headers=NO_STORE)

    @endpoint(
        serializers.EndUserAssertionIn,
        returns={200: serializers.VerifiedOut},
        errors=[*VERIFY, ClientNotAuthenticated],
        token="optional",
    )
    def finish_authentication(self, request: Request) -> Response:
        """Verify the use of a passkey.

        With `mfa_token` it completes that login; in a passkey sign-in it is the only step. Both return tokens.
        """
        asked = self.valid(serializers.EndUserAssertionIn)
        done = authentication.finish_authentication(
            realm=END_USERS,
            caller=replace(
                self.caller_or(PasskeyNotVerified, asked["tenant_id"]), client_secret=asked.get("client_secret")
            ),
            tenant_id=asked["tenant_id"],
            email=asked.get("email"),
            response=asked["response"],
            mfa_token=asked.get("mfa_token"),
        )
        return verified(done)


class PasskeySignUpViewSet(PasskeyViewSet):
    """The general registration, which signs the user in."""

    @endpoint(
        serializers.SignUpIn,
        returns={200: serializers.EnrolledAndSignedInOut},
        errors=[*FINISH, PasskeyNotVerified, ClientNotAuthenticated, NotFirstFactor],
        token="optional",
        any_level=True,
        headers=PROOFS,
        assurance=Action.ADD_FACTOR,
    )
    def finish_registration(self, request: Request) -> Response:
        """Store an end user's new passkey and return tokens; the authenticator must have verified the user."""
        asked = self.valid(serializers.SignUpIn)
        asked["response"] = asked.pop("credential")
        secret = asked.pop("client_secret", None)
        caller = self.caller_or(NoProof, asked["tenant_id"], asked.pop("enrollment_ticket", None))
        caller = replace(caller, client_secret=secret)
        done = registration.finish_registration_and_sign_in(caller=caller, **asked)
        assert done.tokens is not None  # this action issues them
        return enrolled(done)


class RelatedOriginsViewSet(ApiViewSet):
    permission_classes = [Anyone]
    authentication_classes = []

    @endpoint(
        query=serializers.RelatedOriginsQuery,
        returns={200: serializers.RelatedOriginsOut},
        errors=[UnknownTenant],
        token="none",
    )
    def retrieve(self, request: Request) -> Response:
        """Origins that may use the passkeys of this domain (WebAuthn Level 3 section 5.11)."""
        stated: UUID | None = self.valid_query(serializers.RelatedOriginsQuery).get("tenant_id")
        domain = request.META.get("HTTP_HOST", "").partition(":")[0].lower()
        origins = related_origins(domain=domain, tenant_id=stated)
        return Response({"origins": origins}, headers=PUBLIC_FOR_FIVE_MINUTES)
