"""Endpoints for factors of every kind, and the base of all MFA endpoints."""

from collections.abc import Mapping
from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import NotAllowed, ValidationFailed
from identity_platform.api.views import ApiViewSet, endpoint
from mfa import factors, passes, serializers
from mfa.caller import Caller
from mfa.errors import LastFactor, NoProof, OwnFactors, PassNotPossible, TokenOfAnotherUser, UnknownFactor
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from userflow.accounts.permissions_catalogue import FACTORS
from userflow.accounts.principals import CLIENT, Principal
from userflow.accounts.realms import ADMINS, END_USERS
from userflow.errors import PROOF_ERRORS, EmailNotVerified, GrantsMoreThanHeld, InsufficientAuthentication, UnknownUser
from userflow.ids import id_or
from userflow.sessions.assurance import Action
from userflow.sessions.issue import TokenPair, realm_of
from userflow.sessions.permissions import ADMIN, OPERATOR, Anyone, SignedIn, needs, principal_at, tenant_at
from userflow.signin.proof_fields import proof_of
from userflow.signin.views import NO_STORE, TICKET_HEADER

PROOFS = {TICKET_HEADER: "Enrollment ticket of the user's registration or last sign-in, or an enrollment pass."}
# Raised by begin, confirm and finish of every kind.
ADMIN_ERRORS = [UnknownUser, OwnFactors, GrantsMoreThanHeld, InsufficientAuthentication]
TENANCY = [UnknownTenant, TenantSuspended, TenantBusy, TenantMismatch]
ENROLLMENT_ERRORS = [NoProof, InsufficientAuthentication, TokenOfAnotherUser, EmailNotVerified]
__all__ = [
    "ENROLLMENT_ERRORS",
    "NO_STORE",
    "PROOFS",
    "AdminEnrollmentPassViewSet",
    "AdminFactorResetViewSet",
    "EnrollmentPassViewSet",
    "FactorListViewSet",
    "FactorViewSet",
    "with_tokens",
]


class FactorViewSet(ApiViewSet):
    """MFA endpoints work without a token; a token that is sent must be valid (401) and of the tenant (403)."""

    permission_classes = [Anyone]

    def caller(
        self, tenant_id: UUID | None = None, ticket: str | None = None, *, proof: Mapping[str, object] | None = None
    ) -> Caller:
        """Return the proofs of this request; `ticket` is the field `enrollment_ticket`, `proof` is for own changes.

        Raises TenantMismatch (403) when the token is of another tenant, ValidationFailed (400) for two different tickets.
        """
        sender: object = self.request.user
        principal = sender if isinstance(sender, Principal) else None
        if principal is not None and tenant_id is not None:
            tenant_at(self.request, tenant_id)
        header = self.request.META.get("HTTP_X_ENROLLMENT_TICKET")
        if None not in (header, ticket) and header != ticket:
            raise ValidationFailed(details={"enrollment_ticket": [f"The header {TICKET_HEADER} has another ticket."]})
        return Caller(
            principal=principal,
            ticket=ticket if header is None else header,
            user_agent=self.request.META.get("HTTP_USER_AGENT", ""),
            proof=proof or {},
        )


def with_tokens(body: Mapping[str, object], tokens: TokenPair | None) -> Response:
    """Return the response of a verified factor, with the tokens of the sign-in that it completes, if any."""
    return Response({**body, **(tokens.fields() if tokens else {})}, headers=NO_STORE)


class FactorListViewSet(ApiViewSet):
    """The caller's own factors, and for admins the reset of a user's factors."""

    def get_permissions(self) -> list[BasePermission]:
        kind = needs(FACTORS, OPERATOR, ADMIN) if self.action == "reset" else SignedIn
        return [kind()]

    @endpoint(returns={200: serializers.FactorListOut}, errors=[UnknownUser], any_level=True)
    def list(self, request: Request) -> Response:
        """List the caller's own factors."""
        who = _person_at(request)
        found = factors.list_factors(realm=realm_of(who.kind), tenant_id=who.tenant_id, user_id=who.id)
        return Response(found)

    @endpoint(
        serializers.FactorRemovalIn,
        returns={200: serializers.FactorRemovedOut},
        errors=[UnknownFactor, NoProof, LastFactor, *PROOF_ERRORS],
        assurance=Action.REMOVE_FACTOR,
    )
    def destroy(self, request: Request, factor_id: str) -> Response:
        """Remove one of the caller's own factors, with a proof in the body."""
        factors.remove_factor(
            principal=_person_at(request),
            factor_id=id_or(factor_id, UnknownFactor),
            **proof_of(request, self.valid(serializers.FactorRemovalIn)),
        )
        return Response({"message": "The factor is removed.", "success": True})

    @endpoint(
        serializers.FactorResetIn,
        returns={200: serializers.FactorResetOut},
        errors=[*ADMIN_ERRORS, *TENANCY],
        assurance=Action.RESET_FACTORS,
    )
    def reset(self, request: Request) -> Response:
        """Remove all factors of an end user who has lost them; mails an enrollment pass to the user."""
        asked = self.valid(serializers.FactorResetIn)
        tenant_id = tenant_at(request, asked.pop("tenant_id"))
        removed = factors.reset_factors(realm=END_USERS, tenant_id=tenant_id, **asked, by=principal_at(request))
        return _reset(asked["user_id"], removed)


class AdminFactorResetViewSet(ApiViewSet):
    permission_classes = [needs("admins:write", OPERATOR, ADMIN)]

    @endpoint(
        serializers.AdminFactorResetIn,
        returns={200: serializers.FactorResetOut},
        errors=ADMIN_ERRORS,
        assurance=Action.RESET_FACTORS,
    )
    def reset(self, request: Request) -> Response:
        """Remove all factors of an admin user who has lost them; mails an enrollment pass to the user."""
        asked = self.valid(serializers.AdminFactorResetIn)
        removed = factors.reset_factors(realm=ADMINS, tenant_id=None, **asked, by=principal_at(request))
        return _reset(asked["user_id"], removed)


class EnrollmentPassViewSet(ApiViewSet):
    permission_classes = [needs(FACTORS, OPERATOR, ADMIN)]

    @endpoint(
        serializers.EnrollmentPassIn,
        returns={201: serializers.EnrollmentPassOut},
        errors=[*ADMIN_ERRORS, *TENANCY, PassNotPossible],
        assurance=Action.ISSUE_ENROLLMENT_PASS,
    )
    def create(self, request: Request) -> Response:
        """Issue an enrollment pass to an end user without a second factor; valid once, for one hour."""
        asked = self.valid(serializers.EnrollmentPassIn)
        tenant_id = tenant_at(request, asked.pop("tenant_id"))
        deliver = asked.pop("delivery")
        return _issued(
            passes.issue_enrollment_pass(
                realm=END_USERS, tenant_id=tenant_id, **asked, by=principal_at(request), deliver=deliver
            )
        )


class AdminEnrollmentPassViewSet(ApiViewSet):
    permission_classes = [needs("admins:write", OPERATOR, ADMIN)]

    @endpoint(
        serializers.AdminEnrollmentPassIn,
        returns={201: serializers.EnrollmentPassOut},
        errors=[*ADMIN_ERRORS, PassNotPossible],
        assurance=Action.ISSUE_ENROLLMENT_PASS,
    )
    def create(self, request: Request) -> Response:
        """Issue an enrollment pass to an admin user without a second factor; valid once, for one hour."""
        asked = self.valid(serializers.AdminEnrollmentPassIn)
        deliver = asked.pop("delivery")
        return _issued(
            passes.issue_enrollment_pass(
                realm=ADMINS, tenant_id=None, **asked, by=principal_at(request), deliver=deliver
            )
        )


def _issued(issued: passes.EnrollmentPass) -> Response:
    shown = {"enrollment_pass": issued.token} if issued.token else {}
    message = "Give the pass to the user: it is not shown again." if shown else "The pass is mailed to the user."
    body = {"message": message, "user_id": issued.user_id, "expires_at": issued.expires_at, **shown}
    return Response(body, status=201, headers=NO_STORE)


def _person_at(request: Request) -> Principal:
    principal = principal_at(request)
    if principal.kind == CLIENT:
        raise NotAllowed("An application has no factors.")
    return principal


def _reset(user_id: UUID, removed: dict[str, int]) -> Response:
    return Response({"message": "All factors of the user are removed.", "user_id": user_id, "removed": removed})
