"""Endpoints for factors of every kind, and the base of all MFA endpoints."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import ClassVar, cast
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import ApiError, NotAllowed, ValidationFailed
from identity_platform.api.responses import NO_STORE
from identity_platform.api.views import ApiViewSet, Arguments, Contract, Shape, View, endpoint
from mfa import factors, passes, serializers
from mfa.completion import Verified
from mfa.errors import LastFactor, NoProof, NotForYourself, PassNotPossible, TokenOfAnotherUser, UnknownFactor
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from userflow.accounts.models import Account
from userflow.accounts.permissions_catalogue import FACTORS
from userflow.accounts.principals import CLIENT, Principal
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.errors import (
    PROOF_ERRORS,
    ClientNotAuthenticated,
    DirectSignInDisabled,
    EmailNotVerified,
    GrantsMoreThanHeld,
    InsufficientAuthentication,
    TooManyFromAddress,
    UnknownUser,
)
from userflow.ids import id_or
from userflow.sessions.assurance import Action, reject_third_party
from userflow.sessions.issue import realm_of
from userflow.sessions.permissions import ADMIN, OPERATOR, Anyone, SignedIn, needs, principal_at, tenant_at
from userflow.signin.caller import Caller
from userflow.signin.delivery import ApplicationTokens
from userflow.signin.pipeline import SignedIn as SignedInUser
from userflow.signin.proof_fields import ProofIn, proof_in, without_proof
from userflow.signin.views import TICKET_HEADER, user_agent_of

PROOFS = {TICKET_HEADER: "Enrollment ticket of the user's registration or last sign-in, or an enrollment pass."}
ADMIN_ERRORS = [UnknownUser, NotForYourself, GrantsMoreThanHeld, InsufficientAuthentication]
# Of every endpoint that finds the user by the body.
TENANCY = [UnknownTenant, TenantSuspended, TenantBusy, TenantMismatch, TooManyFromAddress]
# Raised by begin, confirm and finish of every kind.
ENROLLMENT_ERRORS = [NoProof, InsufficientAuthentication, TokenOfAnotherUser, EmailNotVerified]
# Raised by a confirmation with an access token, which needs a proof in the request.
ENROLLING_BY_TOKEN = [*PROOF_ERRORS]
enrollment_endpoint = partial(endpoint, token="optional", any_level=True, headers=PROOFS)


class FactorViewSet(ApiViewSet):
    """MFA endpoints work without a token; a token that is sent must be valid (401) and of the tenant (403)."""

    permission_classes = [Anyone]
    realm: ClassVar[Realm] = END_USERS

    def arguments(
        self, *, with_proof: bool = False, but: str = "", unknown_tenant: type[ApiError] = UnknownTenant
    ) -> Arguments:
        """Return the arguments of the use case: the fields of the body, the tenant (None for admin users) and the caller.

        With `with_proof` the fields of a proof are the caller's, except `but`, which means something else there. Raises
        TenantMismatch (403) when the token is of another tenant, ValidationFailed (400) for two different tickets, and
        `unknown_tenant` when an operator names a tenant that does not exist.
        """
        fields = self.validated_fields()
        tenant_id, ticket = fields.setdefault("tenant_id", None), fields.pop("enrollment_ticket", None)
        sender: object = self.request.user
        principal = sender if isinstance(sender, Principal) else None
        if principal is not None and tenant_id is not None:
            try:
                tenant_at(self.request, tenant_id)
            except UnknownTenant as problem:
                raise unknown_tenant from problem
        header = self.request.META.get("HTTP_X_ENROLLMENT_TICKET")
        if None not in (header, ticket) and header != ticket:
            raise ValidationFailed(details={"enrollment_ticket": [f"The header {TICKET_HEADER} has another ticket."]})
        caller = Caller(
            principal=principal,
            ticket=ticket if header is None else header,
            delivery=ApplicationTokens(user_agent_of(self.request), fields.pop("client_secret", None)),
            proof=proof_in(fields, but=but) if with_proof else {},
        )
        return {**(without_proof(fields, but=but) if with_proof else fields), "caller": caller}


def for_admins(
    action: View,
    id: str,
    text: str,
    body: Shape,
    *,
    returns: Shape | None = None,
    without: Collection[type[ApiError]] = (UnknownTenant, ClientNotAuthenticated, DirectSignInDisabled),
) -> View:
    """Return the action of an end user's endpoint for admin users, who name no tenant and no client.

    `id` is its operation id, `text` its summary and description.
    """

    @wraps(action)
    def of_admins(view: ApiViewSet, request: Request) -> HttpResponseBase:
        return action(view, request)

    of_admins.__doc__ = text
    contract: Contract = action.contract  # type: ignore[attr-defined]  # `endpoint` has set it
    errors = [error for error in contract.errors if error not in without]
    answers = {200: returns} if returns is not None else contract.returns
    return cast(View, replace(contract, id=id, body=body, errors=errors, returns=answers)(of_admins))


def with_tokens(body: Mapping[str, object], signed_in: SignedInUser[Account] | None) -> Response:
    """Return the response of a verified factor, with the tokens of the sign-in that it completes, if any."""
    tokens = signed_in.tokens if signed_in is not None else None
    return Response({**body, **(tokens.fields() if tokens else {})}, headers=NO_STORE)


def verified_code(done: Verified, *, tenant_id: UUID | None) -> Response:
    """Return the response of a verified code; that of admin users names no tenant."""
    body = {"email": done.user.email, "message": "The code is right.", "method": done.method, "success": True}
    return with_tokens({**body, **({"tenant_id": tenant_id} if tenant_id is not None else {})}, done.signed_in)


class FactorListViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(id="listFactors", returns={200: serializers.FactorListOut}, errors=[UnknownUser], any_level=True)
    def list(self, request: Request) -> Response:
        """List the caller's own factors.

        Second factors and the number of unused backup codes. A client gets 403.
        """
        principal = _person_at(request)
        listing = factors.list_factors(
            realm=realm_of(principal.kind), tenant_id=principal.tenant_id, user_id=principal.id
        )
        return Response(listing)

    @endpoint(
        ProofIn,
        id="removeFactor",
        returns={200: serializers.SuccessOut},
        errors=[UnknownFactor, NoProof, LastFactor, *PROOF_ERRORS],
        assurance=Action.REMOVE_FACTOR,
    )
    def destroy(self, request: Request, factor_id: str) -> Response:
        """Remove one of the caller's own factors.

        Needs a proof in the body. The last factor cannot be removed if one is required.
        """
        factors.remove_factor(
            principal=_person_at(request),
            factor_id=id_or(factor_id, UnknownFactor),
            proof=proof_in(self.validated_fields()),
        )
        return Response({"message": "The factor is removed.", "success": True})

    @endpoint(
        serializers.PasskeyNameIn, id="renamePasskey", returns={200: serializers.FactorOut}, errors=[UnknownFactor]
    )
    def rename(self, request: Request, factor_id: str) -> Response:
        """Rename one of the caller's own passkeys.

        An empty name restores that of its model.
        """
        passkey_id = id_or(factor_id, UnknownFactor)
        return Response(
            factors.rename_passkey(principal=_person_at(request), factor_id=passkey_id, **self.validated_fields())
        )


class FactorRecoveryViewSet(ApiViewSet):
    """What admins do for end users who have lost their factors."""

    permission_classes = [needs(FACTORS, OPERATOR, ADMIN)]
    realm: ClassVar[Realm] = END_USERS

    def _arguments(self, request: Request) -> Arguments:
        fields = self.validated_fields()
        tenant_id = tenant_at(request, fields.pop("tenant_id")) if self.realm is END_USERS else None
        return {"realm": self.realm, "tenant_id": tenant_id, "by": principal_at(request), **fields}

    @endpoint(
        serializers.FactorResetIn,
        id="resetFactors",
        returns={200: serializers.FactorResetOut},
        errors=[*ADMIN_ERRORS, *TENANCY],
        assurance=Action.RESET_FACTORS,
    )
    def reset(self, request: Request) -> Response:
        """Remove all factors of an end user.

        For a user who has lost them. The user gets an enrollment pass by mail. The caller must hold every permission
        that the user holds.
        """
        arguments = self._arguments(request)
        removed = factors.reset_factors(**arguments)
        message = "All factors of the user are removed."
        return Response({"message": message, "user_id": arguments["user_id"], "removed": removed})

    @endpoint(
        serializers.EnrollmentPassIn,
        id="issueEnrollmentPass",
        returns={201: serializers.EnrollmentPassOut},
        errors=[*ADMIN_ERRORS, *TENANCY, PassNotPossible],
        assurance=Action.ISSUE_ENROLLMENT_PASS,
    )
    def create(self, request: Request) -> Response:
        """Issue an enrollment pass to an end user.

        For a user without a second factor. It allows one enrollment within an hour.
        """
        arguments = self._arguments(request)
        issued = passes.issue_enrollment_pass(deliver=arguments.pop("delivery"), **arguments)
        shown = {"enrollment_pass": issued.token} if issued.token else {}
        message = "Give the pass to the user: it is not shown again." if shown else "The pass is mailed to the user."
        body = {"message": message, "user_id": issued.user_id, "expires_at": issued.expires_at, **shown}
        return Response(body, status=201, headers=NO_STORE)


class AdminFactorRecoveryViewSet(FactorRecoveryViewSet):
    permission_classes = [needs("admins:write", OPERATOR, ADMIN)]
    realm = ADMINS

    reset = for_admins(
        FactorRecoveryViewSet.reset,
        "resetAdminFactors",
        "Remove all factors of an admin user.\n"
        "For a user who has lost them. The user gets an enrollment pass by mail. The caller must hold every "
        "permission that the user holds.",
        serializers.AdminFactorResetIn,
        without=TENANCY,
    )
    create = for_admins(
        FactorRecoveryViewSet.create,
        "issueAdminEnrollmentPass",
        "Issue an enrollment pass to an admin user.\n"
        "For a user without a second factor. It allows one enrollment within an hour.",
        serializers.AdminEnrollmentPassIn,
        without=TENANCY,
    )


def _person_at(request: Request) -> Principal:
    principal = principal_at(request)
    if principal.kind == CLIENT:
        raise NotAllowed("An application has no factors.")
    reject_third_party(principal)
    return principal
