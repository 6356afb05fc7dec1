"""Sign-in, refresh and sign-out over HTTP."""

from collections.abc import Mapping

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import ValidationFailed
from identity_platform.api.responses import NO_STORE, DeletedRecordOut
from identity_platform.api.views import ApiViewSet, Arguments, endpoint
from tenants.errors import TenantBusy, TenantSuspended, UnknownTenant
from userflow.accounts.models import Account
from userflow.credentials import tickets
from userflow.errors import (
    AttemptsLocked,
    ClientNotAuthenticated,
    DirectSignInDisabled,
    EmailNotVerified,
    GrantsMoreThanHeld,
    HashersBusy,
    InsufficientAuthentication,
    TooManyFromAddress,
    UnknownSession,
    UnknownUser,
    WrongCredentials,
)
from userflow.ids import id_or
from userflow.sessions import actions as sessions
from userflow.sessions.assurance import Action
from userflow.sessions.client_authentication import basic_credentials
from userflow.sessions.ending import sign_out
from userflow.sessions.permissions import CLIENT, SignedIn, principal_at, tenant_at
from userflow.sessions.token_actions import end_client_tokens
from userflow.sessions.view_sets import PublicViewSet
from userflow.signin import password, serializers
from userflow.signin.delivery import ApplicationTokens
from userflow.signin.pipeline import SignedIn as SignedInUser
from userflow.signin.pipeline import Waiting

SignInResult = SignedInUser[Account] | Waiting[Account]
# Errors of a call about another user's sessions.
OF_OTHERS = [GrantsMoreThanHeld, InsufficientAuthentication, UnknownTenant, TenantSuspended, TenantBusy]
TICKET_HEADER = "X-Enrollment-Ticket"
CLIENT_BASIC = {"Authorization": "`Basic` of a confidential client: id and secret, each form-encoded (RFC 6749)."}
TICKET_MEANS = {
    TICKET_HEADER: "Proof for enrolling a first factor within 15 minutes. Only while the user has none, and only once the "
    "e-mail address is verified if the tenant requires that."
}


def ticket_header(ticket: str | None) -> dict[str, str]:
    """Return the header of an enrollment ticket, if there is one."""
    return {TICKET_HEADER: ticket} if ticket else {}


def user_agent_of(request: Request) -> str:
    """Return the user agent, for the list of sessions."""
    return str(request.META.get("HTTP_USER_AGENT", ""))


def sign_in_response(result: SignInResult, **fields: object) -> Response:
    """Return the response of a sign-in: tokens and `fields`, or the ticket for the second step."""
    headers = {**NO_STORE, **ticket_header(result.enrollment_ticket)}
    if isinstance(result, Waiting):
        waiting = {
            "mfa_required": True,
            "methods": list(result.methods),
            "mfa_token": result.mfa_token,
            "expires_in": int(tickets.LIFETIME[tickets.SECOND_STEP].total_seconds()),
        }
        if result.enrollment_required:
            waiting |= {"enrollment_required": True, "enrollment_ticket": result.enrollment_ticket}
        return Response(waiting, headers=headers)
    assert result.tokens is not None  # delivered to an application
    return Response({**result.tokens.fields(), **fields, "mfa_required": False}, headers=headers)


def _client_secret(request: Request, fields: Mapping[str, object]) -> str | None:
    """Return the secret of the client that the body names, from HTTP Basic or the body.

    A header that names another client is ignored: it may be for a proxy in front. Raises ValidationFailed for both
    at once (RFC 6749 section 2.3).
    """
    secret = fields.get("client_secret")
    assert secret is None or isinstance(secret, str)  # as the serializer checks
    name_and_secret = basic_credentials(request.META.get("HTTP_AUTHORIZATION", ""))
    if name_and_secret is None or name_and_secret[0].lower() != str(fields["client_id"]):
        return secret
    if secret is not None:
        raise ValidationFailed(details={"client_secret": ["Send the secret by HTTP Basic or in the body, not both."]})
    return name_and_secret[1] or None


class AdminSignInViewSet(PublicViewSet):
    @endpoint(
        serializers.AdminLoginIn,
        id="loginAdmin",
        returns={200: serializers.AdminLoginOut},
        errors=[WrongCredentials, AttemptsLocked, TooManyFromAddress, HashersBusy],
        token="none",
        answer_headers=TICKET_MEANS,
    )
    def login(self, request: Request) -> Response:
        """Sign an admin user in.

        With a second factor the response has `mfa_required: true` and an `mfa_token`, and no tokens. An unknown user, a
        wrong password and an inactive user return the same 401.
        """
        delivery = ApplicationTokens(user_agent_of(request))
        result = password.sign_in_admin(**self.valid(serializers.AdminLoginIn), delivery=delivery)
        user = result.user
        return sign_in_response(result, user={"id": user.pk, "username": user.username, "email": user.email})


class EndUserSignInViewSet(PublicViewSet):
    @endpoint(
        serializers.EndUserLoginIn,
        id="login",
        returns={200: serializers.EndUserLoginOut},
        errors=[
            WrongCredentials,
            ClientNotAuthenticated,
            DirectSignInDisabled,
            EmailNotVerified,
            TenantSuspended,
            AttemptsLocked,
            TooManyFromAddress,
            HashersBusy,
        ],
        token="none",
        headers=CLIENT_BASIC,
        answer_headers=TICKET_MEANS,
    )
    def login(self, request: Request) -> Response:
        """Sign an end user in.

        A confidential client sends its secret, by HTTP Basic or in the body. With a second factor the response has
        `mfa_required: true` and an `mfa_token`, and no tokens. An unknown user, a wrong password and an inactive user
        or client return the same 401.
        """
        fields = self.valid(serializers.EndUserLoginIn)
        fields["client_secret"] = _client_secret(request, fields)
        result = password.sign_in_end_user(**fields, user_agent=user_agent_of(request))
        user = {"id": result.user.pk, "email": result.user.email, "name": result.user.name}
        ids = {"tenant_id": result.tenant_id, "client_id": fields["client_id"]}
        return sign_in_response(result, user=user, **ids)


class SignOutViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(serializers.LogoutIn, id="logout", returns={200: serializers.EndedSessionsOut}, any_level=True)
    def logout(self, request: Request) -> Response:
        """Sign out.

        End this session, or with `all` every session of the caller. For a client: end this token, or with `all` every
        token of the client.
        """
        everywhere = self.valid(serializers.LogoutIn)["all"]
        caller = principal_at(request)
        if caller.kind == CLIENT:
            end_client_tokens(principal=caller, everywhere=everywhere)
            return Response({"message": "Signed out.", "sessions_ended": 0})
        ended = sign_out(principal=caller, everywhere=everywhere)
        return Response({"message": "Signed out.", "sessions_ended": ended})


class SessionViewSet(ApiViewSet):
    """Active sessions of the caller, or of a user of the tenant."""

    permission_classes = [SignedIn]

    @endpoint(
        id="listSessions",
        query=serializers.SessionListQuery,
        returns={200: serializers.SessionListOut},
        errors=[UnknownUser, UnknownTenant, TenantSuspended, TenantBusy],
    )
    def list(self, request: Request) -> Response:
        """List active sessions.

        The caller's own, newest first; with `sessions:read` those of the user in `user_id`.
        """
        arguments, caller = self._arguments(), principal_at(request)
        page = sessions.list_sessions(by=caller, **arguments)
        rows = [serializers.session_record(session, current=caller.session_id) for session in page.rows]
        return Response({"sessions": rows, **page.totals()})

    @endpoint(
        id="endSession",
        query=serializers.SessionNamedQuery,
        returns={200: DeletedRecordOut},
        errors=[UnknownSession, *OF_OTHERS],
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def destroy(self, request: Request, session_id: str) -> Response:
        """End one session.

        One of the caller's own, or with `sessions:write` one of another user of the tenant. Its tokens are rejected
        from the next request on.
        """
        arguments, session = self._arguments(), id_or(session_id, UnknownSession)
        sessions.end_one_session(by=principal_at(request), session_id=session, **arguments)
        return Response({"message": "The session has ended.", "id": session})

    @endpoint(
        id="endAllSessions",
        query=serializers.SessionsOfUserQuery,
        returns={200: serializers.EndedUserSessionsOut},
        errors=[UnknownUser, *OF_OTHERS],
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def destroy_all(self, request: Request) -> Response:
        """End every session of a user.

        End sessions with their refresh tokens and tickets. Another user's need `sessions:write`, an admin user's
        `admins:write` as well, and the caller must hold every permission that the user holds.
        """
        arguments = self._arguments()
        ended = sessions.end_all_sessions(by=principal_at(request), **arguments)
        message = "The sessions have ended."
        return Response({"message": message, "user_id": arguments["user_id"], "sessions_ended": ended})

    def _arguments(self) -> Arguments:
        """Return the fields of the query, with the tenant of the call; an operator who names none means admin users."""
        fields = self.validated_fields()
        requested_tenant_id = fields.get("tenant_id")
        is_named = (
            principal_at(self.request).tenant_id or requested_tenant_id or self.request.META.get("HTTP_X_TENANT_ID")
        )
        return {**fields, "tenant_id": tenant_at(self.request, requested_tenant_id) if is_named else None}
