"""Sign-in, refresh and sign-out over HTTP."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import TenantSuspended
from userflow.errors import WrongCredentials
from userflow.permissions import Anyone, SignedIn, principal_at
from userflow.signin import actions, serializers, tickets
from userflow.signin.actions import SignIn

TICKET_HEADER = "X-Enrollment-Ticket"
NO_STORE = {"Cache-Control": "no-store"}
TICKET_MEANS = {TICKET_HEADER: "Proof for enrolling a first factor within 15 minutes; only while there is none."}


def answer(done: SignIn, **members: Any) -> Response:
    """The answer of a sign-in: tokens and `members`, or the ticket for the second step."""
    headers = {**NO_STORE, **({TICKET_HEADER: done.enrollment_ticket} if done.enrollment_ticket else {})}
    if done.tokens is None:
        waiting = {"mfa_required": True, "methods": list(done.methods)}
        if done.mfa_token is not None:
            waiting["mfa_token"] = done.mfa_token
        # Of the ticket that this answer hands out: for the second step, or in the header for enrolling a first factor.
        purpose = tickets.ENROLLMENT if done.mfa_token is None else tickets.SECOND_STEP
        waiting["expires_in"] = int(tickets.LIFETIME[purpose].total_seconds())
        return Response(waiting, headers=headers)
    return Response({**done.tokens.members(), **members, "mfa_required": False}, headers=headers)


class AdminSignInViewSet(ApiViewSet):
    permission_classes = [Anyone]
    authentication_classes = []

    @endpoint(
        serializers.AdminLoginIn,
        returns={200: serializers.AdminLoginOut},
        refuses=[WrongCredentials, TenantSuspended],
        token="none",
        answer_headers=TICKET_MEANS,
    )
    def login(self, request: Request) -> Response:
        """Sign an admin user in."""
        done = actions.sign_in_admin(
            **self.valid(serializers.AdminLoginIn), user_agent=request.META.get("HTTP_USER_AGENT", "")
        )
        user = done.user
        return answer(done, user={"id": user.pk, "username": user.username, "email": user.email})


class EndUserSignInViewSet(ApiViewSet):
    permission_classes = [Anyone]
    authentication_classes = []

    @endpoint(
        serializers.EndUserLoginIn,
        returns={200: serializers.EndUserLoginOut},
        refuses=[WrongCredentials, TenantSuspended],
        token="none",
        answer_headers=TICKET_MEANS,
    )
    def login(self, request: Request) -> Response:
        """Sign an end user in through a client."""
        done = actions.sign_in_end_user(
            **self.valid(serializers.EndUserLoginIn), user_agent=request.META.get("HTTP_USER_AGENT", "")
        )
        user = {"id": done.user.pk, "email": done.user.email, "name": done.user.name}
        return answer(done, user=user, tenant_id=done.tenant_id, client_id=done.client_id)


class SignOutViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(serializers.LogoutIn, returns={200: serializers.LogoutOut})
    def logout(self, request: Request) -> Response:
        """End this session, or with `all` every session of the caller."""
        everywhere = self.valid(serializers.LogoutIn)["all"]
        ended = actions.sign_out(principal=principal_at(request), everywhere=everywhere)
        return Response({"message": "Signed out.", "sessions_ended": ended})
