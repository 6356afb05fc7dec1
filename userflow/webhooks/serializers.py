from functools import partial

from rest_framework import serializers

from identity_platform.api.fields import Boolean, Choice, Items, QueryChoice, QueryInteger, Text, Timestamp, fields_of
from identity_platform.api.pagination import page_limit
from identity_platform.api.url_field import HttpUrl
from userflow.events.catalogue import EVENTS, FILTERS
from userflow.events.models import DEAD, DELIVERED, PENDING, WebhookEndpoint
from userflow.named_tenant import TenantParameter

MOST_NAMED = 1000
STATUSES = (PENDING, DELIVERED, DEAD)
_events = partial(Items, most=len(FILTERS), required=False, allow_empty=False)


class WebhookEndpointChanges(TenantParameter):
    url = HttpUrl(required=False, allow_fragment=False, help_text="An https URL outside private and reserved networks.")
    description = Text(max_length=255, required=False, allow_blank=True)
    events = _events(Choice(FILTERS), help_text="Events, kinds (`end_user.*`) or `*`. Replaced whole.")
    enabled = Boolean(required=False, help_text="False: pending messages wait, and new events are not kept for it.")

    def validate_events(self, value: list[str]) -> list[str]:
        return list(dict.fromkeys(value))


class WebhookEndpointIn(WebhookEndpointChanges):
    url = HttpUrl(allow_fragment=False, help_text="An https URL outside private and reserved networks.")
    events = _events(Choice(FILTERS), default=lambda: ["*"], help_text="Events, kinds (`end_user.*`) or `*` (default).")


class WebhookEndpointOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    url = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    events = serializers.ListField(child=serializers.CharField(), help_text="Events, kinds (`end_user.*`) or `*`.")
    enabled = serializers.BooleanField(help_text="Whether messages are sent.")
    disabled_reason = serializers.CharField(
        allow_blank=True,
        help_text="admin, gone (the endpoint returned 410) or failing (every delivery has failed for days)",
    )
    failing_since = serializers.DateTimeField(allow_null=True)
    last_delivered_at = serializers.DateTimeField(allow_null=True)
    previous_secret_until = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class NewWebhookEndpointOut(WebhookEndpointOut):
    secret = serializers.CharField(help_text="Verifies the signatures. Shown only now.")


def record(endpoint: WebhookEndpoint) -> dict[str, object]:
    """Return the response fields of an endpoint; its secret is not among them."""
    return fields_of(WebhookEndpointOut, endpoint)


class WebhookEndpointListOut(serializers.Serializer[object]):
    endpoints = WebhookEndpointOut(many=True)


class WebhookTestOut(serializers.Serializer[object]):
    message = serializers.CharField()
    message_id = serializers.CharField(help_text="The `webhook-id` of the message.")


class WebhookMessageQuery(TenantParameter):
    status = QueryChoice(STATUSES, required=False)
    event = QueryChoice(tuple(EVENTS), required=False, help_text="Searches the newest 10,000 messages.")
    cursor = QueryInteger(required=False, min_value=1, help_text="`next_cursor` of the previous page.")
    limit = page_limit(50)


class WebhookMessageOut(serializers.Serializer[object]):
    id = serializers.IntegerField(help_text="Position in the delivery order.")
    message_id = serializers.CharField(help_text="The `webhook-id` of the message.")
    event = serializers.CharField()
    status = serializers.CharField(help_text="pending, delivered or dead")
    attempts = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    next_attempt_at = serializers.DateTimeField(help_text="Next attempt to deliver a pending message.")
    settled_at = serializers.DateTimeField(allow_null=True)
    last_status = serializers.IntegerField(allow_null=True, help_text="HTTP status of the last response.")
    last_error = serializers.CharField(allow_blank=True)


class WebhookMessageListOut(serializers.Serializer[object]):
    messages = WebhookMessageOut(many=True)
    limit = serializers.IntegerField()
    next_cursor = serializers.IntegerField(allow_null=True, help_text="Send this as `cursor`; null on the last page.")


class WebhookReplayIn(TenantParameter):
    any_of = (("message_ids",), ("since",), ("status",))
    message_ids = Items(
        Text(max_length=40),
        most=MOST_NAMED,
        required=False,
        allow_empty=False,
        help_text="Ids of the messages (`webhook-id`).",
    )
    since = Timestamp(required=False, help_text="Messages created since this time.")
    status = Choice(STATUSES, required=False, help_text="Only messages with this status.")

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        if not attrs.keys() & {"message_ids", "since", "status"}:
            raise serializers.ValidationError({"message_ids": ["Send message_ids, since or status."]})
        return attrs


class WebhookReplayOut(serializers.Serializer[object]):
    message = serializers.CharField()
    replayed = serializers.IntegerField()
    more = serializers.BooleanField(help_text="True if more messages match than one call replays: send the call again.")


class WebhookEventOut(serializers.Serializer[object]):
    event = serializers.CharField()
    description = serializers.CharField(help_text="When the event is sent.")


class WebhookEventListOut(serializers.Serializer[object]):
    events = WebhookEventOut(many=True, help_text="Events that can be sent.")
    filters = serializers.ListField(child=serializers.CharField())
