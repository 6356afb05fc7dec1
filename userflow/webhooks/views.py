"""Webhooks over HTTP."""

from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import ApiViewSet, endpoint
from tenants.errors import TenantBusy, TenantRequired, TenantSuspended, UnknownTenant
from userflow.errors import EndpointOff, InsufficientAuthentication, NameServersBusy, TooManyEndpoints, UnknownEndpoint
from userflow.events.catalogue import EVENTS, FILTERS
from userflow.ids import id_or
from userflow.named_tenant import NamedTenant
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import needs, principal_at, reading, tenant_at
from userflow.signin.views import NO_STORE
from userflow.webhooks import actions, serializers

TENANCY = [UnknownTenant, TenantSuspended, TenantBusy, TenantRequired]
READING = ("events", "list", "retrieve", "messages")


class WebhookViewSet(ApiViewSet):
    """Signed HTTP messages about events to a tenant's own systems."""

    def get_permissions(self) -> list[BasePermission]:
        return [needs("webhooks:read" if self.action in READING else "webhooks:write")()]

    @endpoint(returns={200: serializers.WebhookEventListOut})
    def events(self, request: Request) -> Response:
        """List the events and the filters that an endpoint may use."""
        shown = [{"event": event, "description": text} for event, text in EVENTS.items()]
        return Response({"events": shown, "filters": FILTERS})

    @endpoint(query=NamedTenant, returns={200: serializers.WebhookEndpointListOut}, errors=TENANCY)
    def list(self, request: Request) -> Response:
        """List the webhook endpoints of a tenant, oldest first."""
        found = actions.list_endpoints(tenant_id=self._tenant(request), purpose=reading(principal_at(request)))
        return Response({"endpoints": [serializers.record(each) for each in found]})

    @endpoint(
        serializers.WebhookEndpointIn,
        returns={201: serializers.NewWebhookEndpointOut},
        errors=[TooManyEndpoints, NameServersBusy, InsufficientAuthentication, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def create(self, request: Request) -> Response:
        """Create an endpoint. Its secret is shown only now."""
        fields = self.valid(serializers.WebhookEndpointIn)
        tenant_id = tenant_at(request, fields.pop("tenant_id", None))
        made, secret = actions.create_endpoint(tenant_id=tenant_id, by=principal_at(request), **fields)
        return Response({**serializers.record(made), "secret": secret}, status=201, headers=NO_STORE)

    @endpoint(query=NamedTenant, returns={200: serializers.WebhookEndpointOut}, errors=[UnknownEndpoint, *TENANCY])
    def retrieve(self, request: Request, endpoint_id: str) -> Response:
        """Return one endpoint."""
        wanted, purpose = id_or(endpoint_id, UnknownEndpoint), reading(principal_at(request))
        found = actions.find_endpoint(tenant_id=self._tenant(request), endpoint_id=wanted, purpose=purpose)
        return Response(serializers.record(found))

    @endpoint(
        serializers.WebhookEndpointChanges,
        returns={200: serializers.WebhookEndpointOut},
        errors=[UnknownEndpoint, NameServersBusy, InsufficientAuthentication, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def partial_update(self, request: Request, endpoint_id: str) -> Response:
        """Change the given fields. A new URL, or enabling, sends pending messages at once."""
        changes = self.valid(serializers.WebhookEndpointChanges)
        tenant_id = tenant_at(request, changes.pop("tenant_id", None))
        wanted = id_or(endpoint_id, UnknownEndpoint)
        changed = actions.update_endpoint(
            tenant_id=tenant_id, endpoint_id=wanted, changes=changes, by=principal_at(request)
        )
        return Response(serializers.record(changed))

    @endpoint(
        query=NamedTenant,
        returns={200: serializers.WebhookEndpointDeletedOut},
        errors=[UnknownEndpoint, InsufficientAuthentication, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def destroy(self, request: Request, endpoint_id: str) -> Response:
        """Delete an endpoint. No more messages are sent to it."""
        wanted = id_or(endpoint_id, UnknownEndpoint)
        actions.delete_endpoint(tenant_id=self._tenant(request), endpoint_id=wanted, by=principal_at(request))
        return Response({"message": "The webhook endpoint was deleted.", "id": wanted})

    @endpoint(
        serializers.WebhookTestIn,
        returns={200: serializers.NewWebhookEndpointOut},
        errors=[UnknownEndpoint, InsufficientAuthentication, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def rotate(self, request: Request, endpoint_id: str) -> Response:
        """Rotate the secret. The new one is shown only now; the old one signs beside it for a while."""
        tenant_id, wanted = self._named(request, endpoint_id)
        rotated, secret = actions.rotate_secret(tenant_id=tenant_id, endpoint_id=wanted, by=principal_at(request))
        return Response({**serializers.record(rotated), "secret": secret}, headers=NO_STORE)

    @endpoint(
        serializers.WebhookTestIn,
        returns={200: serializers.WebhookTestOut},
        errors=[UnknownEndpoint, EndpointOff, *TENANCY],
    )
    def test(self, request: Request, endpoint_id: str) -> Response:
        """Send a `webhook.test` event to this endpoint."""
        tenant_id, wanted = self._named(request, endpoint_id)
        message_id = actions.send_test(tenant_id=tenant_id, endpoint_id=wanted)
        return Response({"message": "The test event is queued.", "message_id": message_id})

    @endpoint(
        query=serializers.WebhookMessageQuery,
        returns={200: serializers.WebhookMessageListOut},
        errors=[UnknownEndpoint, *TENANCY],
    )
    def messages(self, request: Request, endpoint_id: str) -> Response:
        """List messages to an endpoint, newest first, by cursor; `status=dead` lists the dead letters."""
        asked = self.valid_query(serializers.WebhookMessageQuery)
        rows, next_cursor = actions.list_messages(
            tenant_id=tenant_at(request, asked.get("tenant_id")),
            endpoint_id=id_or(endpoint_id, UnknownEndpoint),
            limit=asked["limit"],
            status=asked.get("status"),
            before=asked.get("cursor"),
            purpose=reading(principal_at(request)),
        )
        return Response({"messages": rows, "limit": asked["limit"], "next_cursor": next_cursor})

    @endpoint(
        serializers.WebhookReplayIn,
        returns={200: serializers.WebhookReplayOut},
        errors=[UnknownEndpoint, EndpointOff, *TENANCY],
    )
    def replay(self, request: Request, endpoint_id: str) -> Response:
        """Replay messages in their order, with the same `webhook-id`."""
        asked = self.valid(serializers.WebhookReplayIn)
        tenant_id = tenant_at(request, asked.pop("tenant_id", None))
        number, more = actions.replay(tenant_id=tenant_id, endpoint_id=id_or(endpoint_id, UnknownEndpoint), **asked)
        return Response({"message": "The messages are queued.", "replayed": number, "more": more})

    def _tenant(self, request: Request) -> UUID:
        return tenant_at(request, self.valid_query(NamedTenant).get("tenant_id"))

    def _named(self, request: Request, endpoint_id: str) -> tuple[UUID, UUID]:
        asked = self.valid(serializers.WebhookTestIn)
        return tenant_at(request, asked.get("tenant_id")), id_or(endpoint_id, UnknownEndpoint)
