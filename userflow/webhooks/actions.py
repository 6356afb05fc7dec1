"""Webhook endpoints of a tenant: create, change, delete, rotate the secret, test, list and replay messages."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from django.conf import settings
from django.db.models import QuerySet
from django.utils.timezone import now

from identity_platform.api.errors import ValidationFailed
from identity_platform.api.pagination import filtered
from identity_platform.audit.differences import differences
from identity_platform.audit.writer import record_for_tenant
from identity_platform.outbound import TargetRejected, check_url
from identity_platform.postgresql.row_errors import first_or
from identity_platform.row_checks import RowCheck, no_check
from identity_platform.semaphore import Semaphore
from tenants.entering import lookup
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.records.tenant_records import list_webhooks
from tenants.states import Purpose
from userflow.accounts.principals import Principal
from userflow.accounts.rank import EVERYTHING, Reach, lacking, require_reach
from userflow.errors import EndpointOff, NameServersBusy, TooManyEndpoints, UnknownEndpoint, UnknownMessage
from userflow.events import outbox
from userflow.events.catalogue import ALL, READ_BY_KIND, TEST
from userflow.events.models import PENDING, WebhookEndpoint, WebhookMessage
from userflow.sessions.assurance import Action, require_assurance
from userflow.webhooks import queue, signing
from userflow.webhooks.delivery import reach

# Bounds the time of one call; the response says whether more messages are left.
REPLAYED_AT_ONCE = 5000
# The audit event of a replay names at most this many messages.
AUDITED_IDS = 20
# A search by event looks at this many of the newest messages, because no index has the event.
SEARCHED = 10_000
# A slow name server holds a thread.
STRONGER: Final = "This endpoint receives data that you may not read, such as end users without endusers:read."
_semaphore = Semaphore.for_slow_requests("webhook_check", NameServersBusy)
_SHOWN = (
    "id",
    "message_id",
    "event",
    "status",
    "attempts",
    "created_at",
    "next_attempt_at",
    "settled_at",
    "last_status",
    "last_error",
)


def list_endpoints(*, tenant_id: UUID, purpose: Purpose = Purpose.READ) -> Sequence[WebhookEndpoint]:
    """Return all endpoints of the tenant, oldest first. Raises UnknownTenant, TenantSuspended, TenantBusy."""
    with in_tenant(tenant_id, purpose):
        return list(_endpoints().order_by("created_at", "id"))


def find_endpoint(*, tenant_id: UUID, endpoint_id: UUID, purpose: Purpose = Purpose.READ) -> WebhookEndpoint:
    """Return one endpoint. Raises UnknownEndpoint."""
    with in_tenant(tenant_id, purpose):
        return _find_endpoint(endpoint_id)


def create_endpoint(
    *,
    tenant_id: UUID,
    url: str,
    events: Sequence[str],
    description: str = "",
    enabled: bool = True,
    by: Principal | None = None,
) -> tuple[WebhookEndpoint, str]:
    """Create an endpoint; return it with its secret, which is not shown again.

    Raises ValidationFailed (a forbidden address), NameServersBusy, TooManyEndpoints, UnknownTenant,
    TenantSuspended, TenantBusy, InsufficientAuthentication, GrantsMoreThanHeld (events with data that the caller may not read).
    """
    require_assurance(Action.CHANGE_CONNECTIONS, by)
    require_reach(by, reach_of_events(events), STRONGER)
    # No tenant is entered here: a name server may be slow, and a tenant has few database connections.
    lookup.find(tenant_id).check(Purpose.WRITE)
    _check(url)
    secret = signing.new_secret()
    endpoint_id = uuid4()
    # The list of tenants first, then the endpoint itself. In the other order an event in between would not be published, and
    # no deliverer would serve the tenant.
    list_webhooks(tenant_id)
    lookup.forget()
    with in_tenant(tenant_id), tenant_atomic():
        # Lock before counting, or parallel requests would all pass the limit.
        queue.lock_endpoints()
        if _endpoints().count() >= settings.WEBHOOK_ENDPOINTS_PER_TENANT:
            raise TooManyEndpoints
        endpoint = WebhookEndpoint(
            id=endpoint_id,
            url=url,
            events=list(events),
            description=description,
            enabled=enabled,
            disabled_reason="" if enabled else WebhookEndpoint.BY_ADMIN,
            secret_sealed=signing.seal_secret(secret, tenant_id=tenant_id, endpoint_id=endpoint_id),
        )
        endpoint.save(force_insert=True)
        _record("created", endpoint, events=endpoint.events)
    return endpoint, secret


def update_endpoint(
    *,
    tenant_id: UUID,
    endpoint_id: UUID,
    changes: dict[str, object],
    by: Principal,
    check: RowCheck = no_check,
) -> WebhookEndpoint:
    """Change the given fields of `url`, `events`, `description` and `enabled`.

    After a change of the address, or after enabling, pending messages are sent at once; a deliverer that sends to the old
    address stops after the message in flight. Raises UnknownEndpoint, ValidationFailed (a forbidden address),
    NameServersBusy, InsufficientAuthentication, GrantsMoreThanHeld (an endpoint that gets data which the caller may not read,
    before or after the change).
    """
    require_assurance(Action.CHANGE_CONNECTIONS, by)
    lookup.find(tenant_id).check(Purpose.WRITE)
    if isinstance(url := changes.get("url"), str):
        _check(url)
    with in_tenant(tenant_id), tenant_atomic():
        endpoint = _find_endpoint(endpoint_id, lock=True)
        check()
        _require_reach_of(endpoint, by)
        before = _audited(endpoint)
        again = changes.get("enabled") is True and not endpoint.enabled
        for field, value in changes.items():
            setattr(endpoint, field, value)
        require_reach(by, reach_of_events(endpoint.events), STRONGER)
        if "enabled" in changes:
            endpoint.disabled_reason = "" if endpoint.enabled else WebhookEndpoint.BY_ADMIN
        if again or "url" in changes:
            endpoint.failing_since = None
        if "url" in changes:
            endpoint.lease = queue.revoked(endpoint.lease)
        # The row is locked, so this is the lease of the present deliverer. The end of the lease stays.
        endpoint.save(update_fields=[*changes, "disabled_reason", "failing_since", "lease", "updated_at"])
        if again or "url" in changes:
            _try_now(endpoint)
        _record("updated", endpoint, **differences(before, _audited(endpoint), changes.keys()))
    return endpoint


def delete_endpoint(*, tenant_id: UUID, endpoint_id: UUID, by: Principal) -> None:
    """Delete an endpoint. No more messages are sent to it; a purge deletes its messages later.

    Raises UnknownEndpoint, InsufficientAuthentication, GrantsMoreThanHeld.
    """
    require_assurance(Action.CHANGE_CONNECTIONS, by)
    with in_tenant(tenant_id), tenant_atomic():
        endpoint = _find_endpoint(endpoint_id, lock=True)
        _require_reach_of(endpoint, by)
        WebhookEndpoint.objects.filter(pk=endpoint_id).delete()
        _record("deleted", endpoint)


def rotate_secret(
    *, tenant_id: UUID, endpoint_id: UUID, by: Principal, check: RowCheck = no_check
) -> tuple[WebhookEndpoint, str]:
    """Give the endpoint a new secret, shown only now; the old one signs beside it during the overlap.

    A third secret ends the oldest one at once, also for messages being sent. Raises UnknownEndpoint,
    InsufficientAuthentication, GrantsMoreThanHeld.
    """
    require_assurance(Action.CHANGE_CONNECTIONS, by)
    secret = signing.new_secret()
    with in_tenant(tenant_id), tenant_atomic():
        endpoint = _find_endpoint(endpoint_id, lock=True)
        check()
        _require_reach_of(endpoint, by)
        endpoint.previous_secret_sealed = endpoint.secret_sealed
        endpoint.previous_secret_until = now() + timedelta(seconds=settings.WEBHOOK_SECRET_OVERLAP_SECONDS)
        endpoint.secret_sealed = signing.seal_secret(secret, tenant_id=tenant_id, endpoint_id=endpoint_id)
        endpoint.lease = queue.revoked(endpoint.lease)
        sealed = ["secret_sealed", "previous_secret_sealed", "previous_secret_until"]
        endpoint.save(update_fields=[*sealed, "lease", "updated_at"])
        outbox.wake_after_commit()
        _record("secret_rotated", endpoint)
    return endpoint, secret


def send_test(*, tenant_id: UUID, endpoint_id: UUID) -> str:
    """Queue a `webhook.test` event for this endpoint only; return its `webhook-id`. Raises UnknownEndpoint, EndpointOff."""
    with in_tenant(tenant_id), tenant_atomic():
        endpoint = _find_endpoint(endpoint_id)
        if not endpoint.enabled:
            raise EndpointOff
        message_id = outbox.publish_to(endpoint.pk, TEST, {"endpoint_id": endpoint.pk})
        _record("tested", endpoint)
    return message_id


def list_messages(
    *,
    tenant_id: UUID,
    endpoint_id: UUID,
    limit: int,
    status: str | None = None,
    event: str | None = None,
    before: int | None = None,
    purpose: Purpose = Purpose.READ,
) -> tuple[list[dict[str, object]], int | None]:
    """Return one page of the endpoint's messages with ids below `before`, newest first, and the next page's `before`.

    With an `event` these are the messages about it among the SEARCHED newest with the status. Bodies and responses are left
    out, as they hold personal data. Raises UnknownEndpoint.
    """
    with in_tenant(tenant_id, purpose):
        _find_endpoint(endpoint_id)
        messages = filtered(WebhookMessage.objects.filter(endpoint_id=endpoint_id), status=status)
        if event is not None:
            newest = messages.order_by("-pk").values("pk")[:SEARCHED]
            messages = WebhookMessage.objects.filter(pk__in=newest, event=event)
        messages = filtered(messages, pk__lt=before)
        rows = list(messages.order_by("-pk").values(*_SHOWN)[: limit + 1])
    more = len(rows) > limit
    return rows[:limit], rows[limit - 1]["id"] if more else None


def find_message(
    *, tenant_id: UUID, endpoint_id: UUID, position: int, purpose: Purpose = Purpose.READ
) -> tuple[WebhookEndpoint, WebhookMessage]:
    """Return one message, by its position in the delivery order, with its body, its attempts, and its endpoint.

    Raises UnknownEndpoint, UnknownMessage.
    """
    with in_tenant(tenant_id, purpose):
        endpoint = _find_endpoint(endpoint_id)
        messages = WebhookMessage.objects.filter(endpoint_id=endpoint_id, pk=position)
        return endpoint, first_or(messages, UnknownMessage)


def replay(
    *,
    tenant_id: UUID,
    endpoint_id: UUID,
    by: Principal | None,
    message_ids: Collection[str] | None = None,
    since: datetime | None = None,
    status: str | None = None,
) -> tuple[int, bool]:
    """Send messages again, by id or by time and status; return their number and whether more are left.

    They keep their `webhook-id` and are sent in their order, before newer ones; messages that wait for a retry are sent at
    once, and those that wait for their first attempt are left alone. If one call cannot take all, it takes the oldest.
    Raises UnknownEndpoint, EndpointOff, GrantsMoreThanHeld (an endpoint that gets data which the caller may not read).
    """
    with in_tenant(tenant_id), tenant_atomic():
        endpoint = _find_endpoint(endpoint_id, lock=True)
        _require_reach_of(endpoint, by)
        if not endpoint.enabled:
            raise EndpointOff
        messages = WebhookMessage.objects.filter(endpoint_id=endpoint_id)
        matching = filtered(messages, message_id__in=message_ids, created_at__gte=since, status=status)
        # Messages that an earlier call has queued are not queued again.
        chosen = list(
            matching.exclude(status=PENDING, attempts=0)
            .order_by("pk")
            .values_list("pk", flat=True)[: REPLAYED_AT_ONCE + 1]
        )
        more = len(chosen) > REPLAYED_AT_ONCE
        number = queue.queue_again(WebhookMessage.objects.filter(pk__in=chosen[:REPLAYED_AT_ONCE]))
        audited_ids = {} if message_ids is None else {"message_ids": sorted(message_ids)[:AUDITED_IDS]}
        _record("replayed", endpoint, messages=number, **audited_ids)
    return number, more


def reach_of_events(events: Iterable[str]) -> Reach:
    """Return what the receiver of events, or of filters for events, can read."""
    kinds = {event.partition(".")[0] for event in events}
    if not kinds <= READ_BY_KIND.keys() | {ALL}:
        return EVERYTHING
    return Reach(frozenset(READ_BY_KIND.values() if ALL in kinds else (READ_BY_KIND[kind] for kind in kinds)))


def _require_reach_of(endpoint: WebhookEndpoint, by: Principal | None) -> None:
    """Raise GrantsMoreThanHeld unless the caller may read what the endpoint subscribes to, and what is stored for it.

    Stored messages count also after the endpoint has left their event: a replay sends them to the present address.
    """
    if by is None or not lacking(by, reach_of_events([ALL]).permissions):
        return
    require_reach(by, reach_of_events(endpoint.events), STRONGER)
    stored = WebhookMessage.objects.filter(endpoint_id=endpoint.pk).exclude(event=TEST)
    require_reach(by, reach_of_events(stored.order_by().values_list("event", flat=True).distinct()), STRONGER)


def _audited(endpoint: WebhookEndpoint) -> dict[str, object]:
    """Return what audit events show of an endpoint. The rest of its address may hold a secret of the receiver."""
    return {
        "url": urlsplit(endpoint.url)._replace(path="", query="", fragment="").geturl(),
        "events": endpoint.events,
        "enabled": endpoint.enabled,
    }


def _check(url: str) -> None:
    try:
        with _semaphore.acquire():
            check_url(url, reach())
    except TargetRejected as refused:
        raise ValidationFailed(details={"url": [refused.reason]}) from refused


def _try_now(endpoint: WebhookEndpoint) -> None:
    waiting = WebhookMessage.objects.filter(endpoint_id=endpoint.pk, status=PENDING, next_attempt_at__gt=now())
    waiting.update(next_attempt_at=now())
    outbox.wake_after_commit()


def _endpoints() -> QuerySet[WebhookEndpoint]:
    """Return the endpoints for events, without the applications that receive logout tokens."""
    return WebhookEndpoint.objects.filter(client_id=None)


def _find_endpoint(endpoint_id: UUID, *, lock: bool = False) -> WebhookEndpoint:
    endpoints = _endpoints().select_for_update(no_key=True) if lock else _endpoints()
    return first_or(endpoints.filter(pk=endpoint_id), UnknownEndpoint)


def _record(verb: str, endpoint: WebhookEndpoint, **details: object) -> None:
    record_for_tenant(f"webhook.{verb}", target=("webhook_endpoint", endpoint.pk), details=details)
