"""End users over HTTP, in the order of the specification's table."""

from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import CursorInvalid, NotAllowed
from identity_platform.api.fields import fields_of
from identity_platform.api.responses import NO_STORE
from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import TenantSuspended, UnknownTenant
from userflow.accounts.principals import Principal
from userflow.accounts.serializers import DeactivatedUserOut, UserStatusOut
from userflow.endusers import actions, serializers
from userflow.errors import (
    PROOF_ERRORS,
    EmailTaken,
    ExternalIdTaken,
    ForeignProvider,
    GrantsMoreThanHeld,
    HashersBusy,
    InsufficientAuthentication,
    LastActiveUser,
    RegistrationClosed,
    TooManyFromAddress,
    UnknownClient,
    UnknownUser,
    WeakPassword,
)
from userflow.ids import id_or, tenant_id_in_path
from userflow.named_tenant import TENANCY
from userflow.sessions.assurance import Action, reject_third_party
from userflow.sessions.permissions import (
    ADMIN,
    END_USER,
    OPERATOR,
    Anyone,
    SignedIn,
    needs,
    principal_at,
    reading,
    require,
    tenant_at,
)
from userflow.signin.proof_fields import proof_in, without_proof
from userflow.signin.views import TICKET_MEANS, ticket_header


class EndUserListViewSet(ApiViewSet):
    """The list in its three forms, with one response."""

    permission_classes = [needs("endusers:read")]

    @endpoint(
        id="listEndUsers",
        query=serializers.EndUserListQuery,
        returns={200: serializers.EndUserListOut},
        errors=[CursorInvalid, *TENANCY],
    )
    def list(self, request: Request) -> Response:
        """List end users.

        Users of a tenant, newest first, filtered by the query.
        """
        return self._page(request, **self.valid_query(serializers.EndUserListQuery))

    @endpoint(
        serializers.EndUserSearchIn,
        id="listEndUsersWithBody",
        returns={200: serializers.EndUserListOut},
        errors=[CursorInvalid, *TENANCY],
    )
    def search(self, request: Request) -> Response:
        """List end users, with the filters in the body.

        The same list as by GET, for filters that do not belong in an address.
        """
        return self._page(request, **self.valid(serializers.EndUserSearchIn))

    @endpoint(
        serializers.EndUserSearchByProjectIn,
        id="listEndUsersOfProject",
        returns={200: serializers.EndUserListOut},
        errors=[CursorInvalid, *TENANCY],
    )
    def by_project(self, request: Request) -> Response:
        """List end users of a project.

        The same list; `project_id` filters by the project of the user's client.
        """
        return self._page(request, **self.valid(serializers.EndUserSearchByProjectIn))

    def _page(
        self, request: Request, *, tenant_id: UUID, page: int, limit: int, cursor: str | None = None, **filters: object
    ) -> Response:
        tenant_id = tenant_at(request, tenant_id)
        purpose = reading(principal_at(request))
        users = actions.list_end_users(
            tenant_id=tenant_id, page=page, limit=limit, filters=filters, cursor=cursor, purpose=purpose
        )
        return Response({**users.totals(), "users": users.rows, "next_cursor": users.next_cursor})


class RegistrationViewSet(ApiViewSet):
    permission_classes = [Anyone]

    @endpoint(
        serializers.RegistrationIn,
        id="registerEndUser",
        returns={201: serializers.RegisteredEndUserOut},
        errors=[
            UnknownTenant,
            UnknownClient,
            EmailTaken,
            ExternalIdTaken,
            WeakPassword,
            RegistrationClosed,
            ForeignProvider,
            TenantSuspended,
            TooManyFromAddress,
            HashersBusy,
        ],
        token="optional",
        answer_headers=TICKET_MEANS,
    )
    def create(self, request: Request) -> Response:
        """Register an end user.

        Public if the client allows self-registration; otherwise, and for another provider than `local`, it needs
        `endusers:write`. `metadata`, `app_metadata` and `external_id` are stored for callers with `endusers:write` only. A
        taken address returns 409. Where the tenant requires verified addresses, each registration waits by itself until its
        own link or code comes back, becomes the user `user_id` then, and ends the others; a taken address gets the same
        response, and its owner a mail.
        """
        fields = self.valid(serializers.RegistrationIn)
        caller = request.user if isinstance(request.user, Principal) else None
        if caller is not None:
            # A token must match the tenant even if none is required.
            tenant_at(request, fields["tenant_id"])

        user, ticket = actions.register_end_user(**fields, by=caller)
        response_fields = {"user_id": user.pk, "tenant_id": fields["tenant_id"], "message": "The user is registered."}
        body = fields_of(serializers.RegisteredEndUserOut, user, **response_fields)
        return Response(body, status=201, headers={**NO_STORE, **ticket_header(ticket)})


class EndUserViewSet(ApiViewSet):
    """One end user, identified in the path or in the body."""

    def get_permissions(self) -> list[BasePermission]:
        if self.action in ("retrieve", "update"):
            return [SignedIn()]
        return [needs("endusers:write" if self.action in ("set_status", "set_active") else "endusers:delete")()]

    @endpoint(id="getEndUser", returns={200: serializers.EndUserDetailOut}, errors=[UnknownUser, *TENANCY])
    def retrieve(self, request: Request, tenant_id: str, user_id: str) -> Response:
        """Get an end user.

        With metadata, factors, roles and groups. Needs `endusers:read`; end users can read their own record.
        """
        tenant, user = self._tenant_and_user(request, tenant_id, user_id, "endusers:read")
        return Response(actions.read_end_user(tenant_id=tenant, user_id=user, purpose=reading(principal_at(request))))

    @endpoint(
        serializers.EndUserChangesByAdmins,
        id="updateEndUser",
        returns={200: serializers.ChangedEndUserOut},
        errors=[UnknownUser, EmailTaken, ExternalIdTaken, GrantsMoreThanHeld, *PROOF_ERRORS, *TENANCY],
        assurance=(Action.CHANGE_EMAIL_OF_OTHERS, Action.CHANGE_OWN_EMAIL),
    )
    def update(self, request: Request, tenant_id: str, user_id: str) -> Response:
        """Change an end user.

        Only the fields in the body change; `metadata` and `app_metadata` are replaced as a whole. Needs
        `endusers:write`; end users can change their own record, without `app_metadata` and `external_id`. One's own new
        `email` needs a proof; the old address gets a link that undoes the change.
        """
        tenant, user = self._tenant_and_user(request, tenant_id, user_id, "endusers:write")
        by = principal_at(request)
        serializer = serializers.EndUserChanges if by.kind == END_USER else serializers.EndUserChangesByAdmins
        fields = self.valid(serializer)
        changes = without_proof(fields)
        changed = actions.update_end_user(
            tenant_id=tenant, user_id=user, by=by, changes=changes, proof=proof_in(fields)
        )
        message = "The profile is updated."
        if changes.get("email", changed.email) != changed.email:
            message += " The new address applies once it is verified; see the mail that was sent there."
        return Response(fields_of(serializers.ChangedEndUserOut, changed, user_id=changed.pk, message=message))

    @endpoint(
        serializers.EndUserStatusIn,
        id="setEndUserStatus",
        returns={200: UserStatusOut},
        errors=[UnknownUser, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def set_status(self, request: Request, tenant_id: str, user_id: str) -> Response:
        """Activate or deactivate an end user.

        Deactivating ends all sessions of the user.
        """
        tenant, user = tenant_at(request, tenant_id_in_path(tenant_id)), id_or(user_id, UnknownUser)
        return _activity(request, tenant, user, active=self.valid(serializers.EndUserStatusIn)["active"])

    @endpoint(
        id="deactivateEndUser",
        returns={200: DeactivatedUserOut},
        errors=[UnknownUser, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def destroy(self, request: Request, tenant_id: str, user_id: str) -> Response:
        """Deactivate an end user.

        Soft delete: the record is kept, sign-in is rejected and all sessions end.
        """
        tenant, user = tenant_at(request, tenant_id_in_path(tenant_id)), id_or(user_id, UnknownUser)
        return _deactivate(request, tenant, user)

    def _tenant_and_user(self, request: Request, tenant_id: str, user_id: str, permission: str) -> tuple[UUID, UUID]:
        """Tenant and user of the path, if the caller is that user or holds the permission."""
        principal = principal_at(request)
        tenant = tenant_at(request, tenant_id_in_path(tenant_id))
        if principal.kind == END_USER:
            # The same error whether or not the other user exists.
            if user_id.lower() != str(principal.id):
                raise NotAllowed("End users can only read and change their own record.")
            reject_third_party(principal)
            return tenant, principal.id
        require(principal, permission)
        return tenant, id_or(user_id, UnknownUser)

    @endpoint(
        serializers.EndUserActiveIn,
        id="setEndUserActive",
        returns={200: UserStatusOut},
        errors=[UnknownUser, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def set_active(self, request: Request) -> Response:
        """Activate or deactivate an end user named in the body.

        Deactivating ends all sessions of the user.
        """
        fields = self.valid(serializers.EndUserActiveIn)
        return _activity(request, tenant_at(request, fields["tenant_id"]), fields["user_id"], active=fields["active"])

    @endpoint(
        serializers.UserInTenantIn,
        id="deactivateEndUserWithBody",
        returns={200: DeactivatedUserOut},
        errors=[UnknownUser, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def deactivate(self, request: Request) -> Response:
        """Deactivate an end user named in the body.

        Soft delete: the record is kept, sign-in is rejected and all sessions end.
        """
        fields = self.valid(serializers.UserInTenantIn)
        return _deactivate(request, tenant_at(request, fields["tenant_id"]), fields["user_id"])

    @endpoint(
        serializers.UserInTenantIn,
        id="eraseEndUser",
        returns={200: serializers.ErasedUserOut},
        errors=[UnknownUser, GrantsMoreThanHeld, LastActiveUser, InsufficientAuthentication, *TENANCY],
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def erase(self, request: Request) -> Response:
        """Erase an end user.

        Hard delete: the user is deleted with all dependent records, for good. The last active user of a tenant cannot
        be erased.
        """
        fields = self.valid(serializers.UserInTenantIn)
        tenant = tenant_at(request, fields["tenant_id"])
        deleted = actions.erase_end_user(tenant_id=tenant, user_id=fields["user_id"], by=principal_at(request))
        message = "The user and all dependent records are deleted."
        return Response({"message": message, "user_id": fields["user_id"], "deleted": deleted})


class MappingViewSet(ApiViewSet):
    permission_classes = [SignedIn]

    @endpoint(
        id="getTenantDatabase",
        query=serializers.MappingQuery,
        returns={200: serializers.TenantDatabaseMappingOut},
        errors=[UnknownTenant],
    )
    def retrieve(self, request: Request) -> Response:
        """Get the database of a tenant.

        For operators with `tenants:read` and for the tenant's admins.
        """
        query = self.valid_query(serializers.MappingQuery)
        principal = principal_at(request)
        tenant = tenant_at(request, query["tenant_id"])
        if principal.kind not in (OPERATOR, ADMIN) or (
            principal.kind == OPERATOR and not principal.may("tenants:read")
        ):
            raise NotAllowed("Only operators and admins of the tenant can read the database mapping.")
        return Response(actions.database_mapping(tenant_id=tenant))


def _activity(request: Request, tenant_id: UUID, user_id: UUID, *, active: bool) -> Response:
    by = principal_at(request)
    user = actions.set_end_user_active(tenant_id=tenant_id, user_id=user_id, active=active, by=by)
    message = "The user is active." if user.active else "The user is deactivated."
    return Response(fields_of(UserStatusOut, user, user_id=user.pk, message=message))


def _deactivate(request: Request, tenant_id: UUID, user_id: UUID) -> Response:
    actions.set_end_user_active(tenant_id=tenant_id, user_id=user_id, active=False, by=principal_at(request))
    return Response({"message": "The user is deactivated. The record is kept.", "user_id": user_id, "active": False})
