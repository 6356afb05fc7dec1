from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import NotAllowed, ValidationFailed
from identity_platform.api.fields import fields_of
from identity_platform.api.responses import NO_STORE
from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import UnknownTenant
from userflow.accounts.lookups import find_admin_user
from userflow.accounts.serializers import UserStatusOut
from userflow.admins import actions, serializers
from userflow.errors import (
    PROOF_ERRORS,
    AdminNameTaken,
    GrantsMoreThanHeld,
    InsufficientAuthentication,
    LastAdmin,
    NotYourself,
    TooManyFromAddress,
    UnknownRole,
    UnknownUser,
    WeakPassword,
)
from userflow.ids import id_or
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import (
    ADMIN,
    OPERATOR,
    SignedIn,
    needs,
    principal_at,
    tenant_at,
    tenant_or_platform_at,
)
from userflow.signin.proof_fields import proof_in, without_proof
from userflow.signin.views import TICKET_MEANS, ticket_header

Reads = needs("admins:read", OPERATOR, ADMIN)
Writes = needs("admins:write", OPERATOR, ADMIN)
GRANTING = [UnknownRole, GrantsMoreThanHeld]
DEACTIVATING = [UnknownUser, NotYourself, LastAdmin, GrantsMoreThanHeld, InsufficientAuthentication]


class AdminUserViewSet(ApiViewSet):
    """Admin users; actions differ in permission: read, write, own record."""

    def get_permissions(self) -> list[BasePermission]:
        kinds: dict[str, type[BasePermission]] = {"list": Reads, "retrieve": Reads, "me": SignedIn}
        return [kinds.get(self.action, Writes)()]

    @endpoint(
        serializers.AdminUserIn,
        id="createAdminUser",
        returns={201: serializers.AdminUserOut},
        errors=[AdminNameTaken, WeakPassword, UnknownTenant, InsufficientAuthentication, *GRANTING],
        assurance=Action.GRANT_ROLES,
        answer_headers=TICKET_MEANS,
    )
    def create(self, request: Request) -> Response:
        """Create an admin user.

        An operator without `tenant_id` creates another operator. The caller must hold every permission of the roles.
        """
        fields = self.valid(serializers.AdminUserIn)
        given_tenant_id = fields.pop("tenant_id", None)
        by = principal_at(request)
        if given_tenant_id is None and by.tenant_id is None and "HTTP_X_TENANT_ID" in request.META:
            # Ignoring the header would create an operator, but the caller most likely means an admin of that tenant.
            says = "Send tenant_id in the body; this endpoint ignores the header."
            raise ValidationFailed(details={"tenant_id": [says]})
        fields["tenant_id"] = tenant_at(request, given_tenant_id) if given_tenant_id or by.tenant_id else None
        user, ticket = actions.create_admin_user(**fields, by=by)
        return Response(serializers.record(user), status=201, headers={**NO_STORE, **ticket_header(ticket)})

    @endpoint(
        id="listAdminUsers",
        query=serializers.AdminListQuery,
        returns={200: serializers.AdminUserListOut},
        errors=[UnknownTenant],
    )
    def list(self, request: Request) -> Response:
        """List admin users.

        Newest first. An operator without `tenant_id` gets those of the whole platform.
        """
        query = self.valid_query(serializers.AdminListQuery)
        tenant_id = tenant_or_platform_at(request, query.pop("tenant_id", None))
        page = actions.list_admin_users(tenant_id=tenant_id, **query)
        return Response({"items": [serializers.profile(user) for user in page.rows], **page.totals()})

    @endpoint(id="getCurrentAdminUser", returns={200: serializers.AdminUserDetailOut})
    def me(self, request: Request) -> Response:
        """Get the signed-in admin user.

        With roles, permissions and factors. End users and clients get 403.
        """
        by = principal_at(request)
        if not by.is_admin:
            raise NotAllowed("This endpoint is for admin users. Use /authmgr/profile.")
        return Response(serializers.profile(find_admin_user(user_id=by.id, within=by.tenant_id)))

    @endpoint(id="getAdminUser", returns={200: serializers.AdminUserDetailOut}, errors=[UnknownUser])
    def retrieve(self, request: Request, user_id: str) -> Response:
        """Get an admin user."""
        within = principal_at(request).tenant_id
        return Response(serializers.profile(find_admin_user(user_id=id_or(user_id, UnknownUser), within=within)))

    @endpoint(
        serializers.AdminUserChanges,
        id="updateAdminUser",
        returns={200: serializers.AdminUserDetailOut},
        errors=[*PROOF_ERRORS, UnknownUser, AdminNameTaken, TooManyFromAddress, *GRANTING, LastAdmin],
        assurance=(Action.GRANT_ROLES, Action.CHANGE_EMAIL_OF_OTHERS, Action.CHANGE_OWN_EMAIL),
    )
    def update(self, request: Request, user_id: str) -> Response:
        """Change an admin user.

        Only the fields in the body change; `roles` replaces all. The caller's own new `email` needs a proof.
        """
        fields = self.valid(serializers.AdminUserChanges)
        user = actions.update_admin_user(
            user_id=id_or(user_id, UnknownUser),
            by=principal_at(request),
            changes=without_proof(fields),
            proof=proof_in(fields),
        )
        return Response(serializers.profile(user))

    @endpoint(
        id="deactivateAdminUser",
        returns={200: UserStatusOut},
        errors=DEACTIVATING,
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def destroy(self, request: Request, user_id: str) -> Response:
        """Deactivate an admin user.

        The record is kept and all sessions end. The caller and the last active admin of a tenant return 403.
        """
        return self._activity(request, id_or(user_id, UnknownUser), active=False)

    @endpoint(
        serializers.AdminActiveIn,
        id="setAdminUserActive",
        returns={200: UserStatusOut},
        errors=DEACTIVATING,
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def activity(self, request: Request) -> Response:
        """Activate or deactivate an admin user.

        Deactivating ends all sessions. The caller and the last active admin of a tenant cannot be deactivated.
        """
        fields = self.valid(serializers.AdminActiveIn)
        return self._activity(request, fields["user_id"], active=fields["active"])

    def _activity(self, request: Request, user_id: UUID, *, active: bool) -> Response:
        user = actions.set_admin_active(user_id=user_id, active=active, by=principal_at(request))
        message = "The admin user is active." if active else "The admin user is deactivated."
        return Response(fields_of(UserStatusOut, user, user_id=user.pk, message=message))
