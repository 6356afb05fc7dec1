"""Clients over HTTP."""

from functools import partial

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.errors import ValidationFailed
from identity_platform.api.responses import NO_STORE, DeletedRecordOut
from identity_platform.api.views import ApiViewSet, Arguments, endpoint
from tenants.errors import TenantBusy, TenantSuspended, UnknownTenant
from userflow.clients import actions, serializers
from userflow.errors import (
    DefaultClientStays,
    GrantsMoreThanHeld,
    InsufficientAuthentication,
    NoClientSecret,
    UnknownClient,
)
from userflow.ids import id_or, tenant_id_in_path
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import needs, principal_at, tenant_at

TENANCY = [UnknownTenant, TenantSuspended, TenantBusy]
ACTIVATING = [UnknownClient, GrantsMoreThanHeld, ValidationFailed, *TENANCY]
CHANGING = [InsufficientAuthentication, *ACTIVATING]
changing_endpoint = partial(
    endpoint,
    serializers.ClientChanges,
    returns={200: serializers.OAuthClientOut},
    errors=CHANGING,
    assurance=(Action.WRITE_CLIENT_SECRET, Action.GRANT_ROLES, Action.END_SESSIONS_OF_OTHERS),
)


class ClientViewSet(ApiViewSet):
    """The applications of the tenant in the path."""

    def get_permissions(self) -> list[BasePermission]:
        reading = self.action in ("list", "retrieve")
        return [needs("clients:read" if reading else "clients:write")()]

    def path_arguments(self) -> Arguments:
        """Return the tenant and the client of the path. Raises what `tenant_at` raises, and UnknownClient."""
        tenant_id = tenant_at(self.request, tenant_id_in_path(self.kwargs["tenant_id"]))
        client_argument = (
            {"client_id": id_or(self.kwargs["client_id"], UnknownClient)} if "client_id" in self.kwargs else {}
        )
        return {"tenant_id": tenant_id, **client_argument}

    @endpoint(
        id="listClients", query=serializers.ClientListQuery, returns={200: serializers.ClientListOut}, errors=TENANCY
    )
    def list(self, request: Request, tenant_id: str) -> Response:
        """List clients.

        Applications of a tenant, newest first.
        """
        page = actions.list_clients(**self.path_arguments(), **self.valid_query(serializers.ClientListQuery))
        clients = [serializers.record(client) for client in page.rows]
        return Response({"clients": clients, "pagination": page.totals()})

    @endpoint(
        serializers.ClientIn,
        id="createClient",
        returns={201: serializers.NewClientOut},
        errors=[GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=(Action.WRITE_CLIENT_SECRET, Action.GRANT_ROLES),
    )
    def create(self, request: Request, tenant_id: str) -> Response:
        """Create a client.

        The response contains the secret of a confidential client; it is not shown again. The caller must hold the
        `scopes` of the client.
        """
        arguments, fields = self.path_arguments(), self.valid(serializers.ClientIn)
        client, secret = actions.create_client(by=principal_at(request), **arguments, **fields)
        shown = {"client_secret": secret} if secret else {}
        return Response({**serializers.record(client), **shown}, status=201, headers=NO_STORE)

    @endpoint(id="getClient", returns={200: serializers.OAuthClientOut}, errors=[UnknownClient, *TENANCY])
    def retrieve(self, request: Request, tenant_id: str, client_id: str) -> Response:
        """Get a client.

        The client without its secret.
        """
        return Response(serializers.record(actions.find_client(**self.path_arguments())))

    @changing_endpoint(id="updateClient")
    def update(self, request: Request, tenant_id: str, client_id: str) -> Response:
        """Change a client.

        Only the fields in the body change. Changes that widen what the client can do need a recent sign-in.
        """
        arguments, changes = self.path_arguments(), self.valid(serializers.ClientChanges)
        changed = actions.update_client(**arguments, by=principal_at(request), changes=changes)
        return Response(serializers.record(changed))

    @changing_endpoint(id="patchClient")
    def partial_update(self, request: Request, tenant_id: str, client_id: str) -> Response:
        """Change a client by PATCH.

        The same as `updateClient`, for callers that expect PATCH where only the fields in the body change.
        """
        return self.update(request, tenant_id, client_id)

    @endpoint(
        id="deleteClient",
        returns={200: DeletedRecordOut},
        errors=[UnknownClient, DefaultClientStays, GrantsMoreThanHeld, InsufficientAuthentication, *TENANCY],
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def destroy(self, request: Request, tenant_id: str, client_id: str) -> Response:
        """Delete a client.

        Its tokens end for good; its users stay. The default client cannot be deleted.
        """
        arguments = self.path_arguments()
        actions.delete_client(**arguments, by=principal_at(request))
        return Response({"message": "The client is deleted.", "id": arguments["client_id"]})

    @endpoint(id="activateClient", returns={200: serializers.OAuthClientOut}, errors=ACTIVATING)
    def activate(self, request: Request, tenant_id: str, client_id: str) -> Response:
        """Activate a client.

        Users can sign in through it again.
        """
        return self._activity(active=True)

    @endpoint(
        id="deactivateClient",
        returns={200: serializers.OAuthClientOut},
        errors=CHANGING,
        assurance=Action.END_SESSIONS_OF_OTHERS,
    )
    def deactivate(self, request: Request, tenant_id: str, client_id: str) -> Response:
        """Deactivate a client.

        Sign-in through it is rejected, and its tokens end for good.
        """
        return self._activity(active=False)

    def _activity(self, *, active: bool) -> Response:
        changed = actions.set_client_active(**self.path_arguments(), by=principal_at(self.request), active=active)
        return Response(serializers.record(changed))

    @endpoint(
        serializers.ClientSecretIn,
        id="rotateClientSecret",
        returns={200: serializers.RotatedClientOut},
        errors=[NoClientSecret, *CHANGING],
        assurance=Action.WRITE_CLIENT_SECRET,
    )
    def secret(self, request: Request, tenant_id: str, client_id: str) -> Response:
        """Rotate the secret of a client.

        The response contains the new secret; it is not shown again. The previous one stays valid for `overlap_seconds`.
        A public client has none.
        """
        arguments, fields = self.path_arguments(), self.valid(serializers.ClientSecretIn)
        rotated, secret = actions.rotate_client_secret(**arguments, by=principal_at(request), **fields)
        body = {
            **serializers.record(rotated),
            "client_secret": secret,
            "previous_secret_expires_at": rotated.previous_secret_until,
        }
        return Response(body, headers=NO_STORE)
