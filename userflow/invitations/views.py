from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.responses import NO_STORE
from identity_platform.api.views import endpoint
from tenants.errors import TenantBusy, TenantRequired, TenantSuspended, UnknownTenant
from userflow.accounts.models import AdminUser
from userflow.accounts.principals import OPERATOR
from userflow.errors import (
    AdminNameTaken,
    AlreadyInvited,
    EmailTaken,
    ExternalIdTaken,
    GrantsMoreThanHeld,
    HashersBusy,
    InsufficientAuthentication,
    InvitationClosed,
    InvitationInvalid,
    TooManyFromAddress,
    UnknownClient,
    UnknownInvitation,
    UnknownRole,
    WeakPassword,
)
from userflow.invitations import actions, serializers
from userflow.invitations.acceptance import accept_invitation
from userflow.invitations.queries import InvitationRecord
from userflow.named_tenant import InTenantViewSet, TenantParameter
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import principal_at, tenant_or_platform_at
from userflow.sessions.view_sets import PublicViewSet
from userflow.signin.views import TICKET_MEANS, ticket_header

TENANCY = [UnknownTenant, TenantSuspended, TenantBusy]
INVITING = [
    EmailTaken,
    ExternalIdTaken,
    AdminNameTaken,
    UnknownRole,
    GrantsMoreThanHeld,
    InsufficientAuthentication,
    TooManyFromAddress,
]


class InvitationViewSet(InTenantViewSet):
    area = "invitations"
    unknown = UnknownInvitation

    def tenant(self, tenant_id: UUID | None) -> UUID | None:
        return tenant_or_platform_at(self.request, tenant_id)

    def record(self, shown: InvitationRecord) -> dict[str, object]:
        return serializers.record(shown, to_operator=principal_at(self.request).kind == OPERATOR)

    @endpoint(
        id="listInvitations",
        query=serializers.InvitationListQuery,
        returns={200: serializers.InvitationListOut},
        errors=TENANCY,
    )
    def list(self, request: Request) -> Response:
        """List invitations.

        Newest first. An operator without `tenant_id` gets the invitations of admin users everywhere.
        """
        page = actions.list_invitations(**self.arguments())
        return Response({"invitations": [self.record(shown) for shown in page.rows], **page.totals()})

    @endpoint(
        serializers.InvitationIn,
        id="createInvitation",
        returns={201: serializers.InvitationOut},
        errors=[*INVITING, AlreadyInvited, UnknownClient, TenantRequired, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def create(self, request: Request) -> Response:
        """Invite a user.

        The token is sent by mail only and is valid for seven days. An address that has a user returns 409.
        """
        shown = actions.invite(by=principal_at(request), **self.arguments())
        return Response(self.record(shown), status=201)

    @endpoint(
        id="resendInvitation",
        query=TenantParameter,
        returns={200: serializers.InvitationOut},
        errors=[UnknownInvitation, InvitationClosed, *INVITING, *TENANCY],
        assurance=Action.GRANT_ROLES,
    )
    def resend(self, request: Request, invitation_id: str) -> Response:
        """Send an invitation again.

        The mail has a new token, valid for seven days; the previous one becomes invalid.
        """
        return Response(self.record(actions.resend_invitation(by=principal_at(request), **self.arguments())))

    @endpoint(
        id="cancelInvitation",
        query=TenantParameter,
        returns={200: serializers.InvitationOut},
        errors=[UnknownInvitation, InvitationClosed, *TENANCY],
    )
    def destroy(self, request: Request, invitation_id: str) -> Response:
        """Cancel an invitation.

        Its token becomes invalid.
        """
        return Response(self.record(actions.cancel_invitation(by=principal_at(request), **self.arguments())))


class AcceptanceViewSet(PublicViewSet):
    @endpoint(
        serializers.AcceptInvitationIn,
        id="acceptInvitation",
        returns={201: serializers.AcceptedInvitationOut},
        errors=[
            InvitationInvalid,
            WeakPassword,
            AdminNameTaken,
            EmailTaken,
            TooManyFromAddress,
            HashersBusy,
            TenantSuspended,
            TenantBusy,
        ],
        token="none",
        answer_headers=TICKET_MEANS,
    )
    def accept(self, request: Request) -> Response:
        """Accept an invitation.

        Create the user with the token of the mail and a password.
        """
        done = accept_invitation(**self.valid(serializers.AcceptInvitationIn))
        body = {
            "user_id": done.user.pk,
            "kind": done.kind,
            "email": done.user.email,
            **({"username": done.user.username} if isinstance(done.user, AdminUser) else {}),
            "tenant_id": done.tenant_id,
            "client_id": done.client_id,
            "message": "The account is ready. Sign in with your password.",
        }
        return Response(body, status=201, headers={**NO_STORE, **ticket_header(done.enrollment_ticket)})
