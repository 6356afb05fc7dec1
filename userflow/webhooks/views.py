from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.responses import NO_STORE, DeletedRecordOut
from identity_platform.api.views import endpoint
from userflow.errors import (
    EndpointOff,
    GrantsMoreThanHeld,
    InsufficientAuthentication,
    NameServersBusy,
    TooManyEndpoints,
    UnknownEndpoint,
)
from userflow.events.catalogue import EVENTS, FILTERS
from userflow.named_tenant import TENANCY, InTenantViewSet, OptionalTenantIn, TenantParameter
from userflow.sessions.assurance import Action
from userflow.sessions.permissions import principal_at, reading
from userflow.webhooks import actions, serializers


class WebhookViewSet(InTenantViewSet):
    """Signed HTTP messages about events to a tenant's own systems."""

    area = "webhooks"
    reads = ("events", "list", "retrieve", "messages")
    unknown = UnknownEndpoint

    @endpoint(id="listWebhookEvents", returns={200: serializers.WebhookEventListOut})
    def events(self, request: Request) -> Response:
        """List the events of webhooks.

        With the filters that an endpoint can use.
        """
        shown = [{"event": event, "description": text} for event, text in EVENTS.items()]
        return Response({"events": shown, "filters": FILTERS})

    @endpoint(
        id="listWebhookEndpoints",
        query=TenantParameter,
        returns={200: serializers.WebhookEndpointListOut},
        errors=TENANCY,
    )
    def list(self, request: Request) -> Response:
        """List webhook endpoints.

        Oldest first, without secrets.
        """
        endpoints = actions.list_endpoints(purpose=reading(principal_at(request)), **self.arguments())
        return Response({"endpoints": [serializers.record(row) for row in endpoints]})

    @endpoint(
        serializers.WebhookEndpointIn,
        id="createWebhookEndpoint",
        returns={201: serializers.NewWebhookEndpointOut},
        errors=[TooManyEndpoints, NameServersBusy, InsufficientAuthentication, GrantsMoreThanHeld, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def create(self, request: Request) -> Response:
        """Create a webhook endpoint.

        The response contains the secret that verifies the signatures; it is not shown again.
        """
        made, secret = actions.create_endpoint(by=principal_at(request), **self.arguments())
        return Response({**serializers.record(made), "secret": secret}, status=201, headers=NO_STORE)

    @endpoint(
        id="getWebhookEndpoint",
        query=TenantParameter,
        returns={200: serializers.WebhookEndpointOut},
        errors=[UnknownEndpoint, *TENANCY],
    )
    def retrieve(self, request: Request, endpoint_id: str) -> Response:
        """Get a webhook endpoint.

        The endpoint without its secret.
        """
        webhook_endpoint = actions.find_endpoint(purpose=reading(principal_at(request)), **self.arguments())
        return Response(serializers.record(webhook_endpoint))

    @endpoint(
        serializers.WebhookEndpointChanges,
        id="updateWebhookEndpoint",
        returns={200: serializers.WebhookEndpointOut},
        errors=[UnknownEndpoint, NameServersBusy, InsufficientAuthentication, GrantsMoreThanHeld, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def partial_update(self, request: Request, endpoint_id: str) -> Response:
        """Change a webhook endpoint.

        Only the fields in the body change. A new URL, or enabling, sends pending messages at once.
        """
        return Response(serializers.record(actions.update_endpoint(by=principal_at(request), **self.changes())))

    @endpoint(
        id="deleteWebhookEndpoint",
        query=TenantParameter,
        returns={200: DeletedRecordOut},
        errors=[UnknownEndpoint, InsufficientAuthentication, GrantsMoreThanHeld, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def destroy(self, request: Request, endpoint_id: str) -> Response:
        """Delete a webhook endpoint.

        No more messages are sent to it.
        """
        arguments = self.arguments()
        actions.delete_endpoint(by=principal_at(request), **arguments)
        return Response({"message": "The webhook endpoint was deleted.", "id": arguments["endpoint_id"]})

    @endpoint(
        OptionalTenantIn,
        id="rotateWebhookSecret",
        returns={200: serializers.NewWebhookEndpointOut},
        errors=[UnknownEndpoint, InsufficientAuthentication, GrantsMoreThanHeld, *TENANCY],
        assurance=Action.CHANGE_CONNECTIONS,
    )
    def rotate(self, request: Request, endpoint_id: str) -> Response:
        """Rotate the secret of a webhook endpoint.

        The response contains the new secret; it is not shown again. The old one signs beside it for a while.
        """
        rotated, secret = actions.rotate_secret(by=principal_at(request), **self.arguments())
        return Response({**serializers.record(rotated), "secret": secret}, headers=NO_STORE)

    @endpoint(
        OptionalTenantIn,
        id="testWebhookEndpoint",
        returns={200: serializers.WebhookTestOut},
        errors=[UnknownEndpoint, EndpointOff, *TENANCY],
    )
    def test(self, request: Request, endpoint_id: str) -> Response:
        """Send a test event to a webhook endpoint.

        Queue the event `webhook.test`, regardless of the events of the endpoint.
        """
        message_id = actions.send_test(**self.arguments())
        return Response({"message": "The test event is queued.", "message_id": message_id})

    @endpoint(
        id="listWebhookMessages",
        query=serializers.WebhookMessageQuery,
        returns={200: serializers.WebhookMessageListOut},
        errors=[UnknownEndpoint, *TENANCY],
    )
    def messages(self, request: Request, endpoint_id: str) -> Response:
        """List the messages to a webhook endpoint.

        Newest first, by cursor; `status=dead` lists the dead letters.
        """
        arguments = self.arguments()
        before, purpose = arguments.pop("cursor", None), reading(principal_at(request))
        rows, next_cursor = actions.list_messages(before=before, purpose=purpose, **arguments)
        return Response({"messages": rows, "limit": arguments["limit"], "next_cursor": next_cursor})

    @endpoint(
        serializers.WebhookReplayIn,
        id="replayWebhookMessages",
        returns={200: serializers.WebhookReplayOut},
        errors=[UnknownEndpoint, EndpointOff, GrantsMoreThanHeld, *TENANCY],
    )
    def replay(self, request: Request, endpoint_id: str) -> Response:
        """Send messages to a webhook endpoint again.

        In their order, with the same `webhook-id`. To replay one message, send its id alone.
        """
        number, more = actions.replay(by=principal_at(request), **self.arguments())
        return Response({"message": "The messages are queued.", "replayed": number, "more": more})
