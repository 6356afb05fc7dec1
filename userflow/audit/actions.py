"""Read audit logs: pages for the API, all events for an export."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from django.db.models import QuerySet

from identity_platform.api.pagination import filtered
from identity_platform.audit.models import PlatformEvent, TenantEvent
from identity_platform.audit.writer import record_for_platform
from tenants.context import in_tenant
from tenants.states import Purpose

TENANT, PLATFORM = "tenant", "platform"
Events = TypeVar("Events", "QuerySet[PlatformEvent]", "QuerySet[TenantEvent]")
EXPORTED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of events; an absent one matches everything."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None
    # From this moment, up to but not including that one.
    since: datetime | None = None
    until: datetime | None = None


def page_of_events(
    *,
    tenant_id: UUID | None,
    trail: str,
    limit: int,
    filters: Filters,
    before: int | None = None,
    purpose: Purpose = Purpose.READ,
) -> tuple[list[dict[str, object]], int | None]:
    """Return one page of an audit log, newest first, with events before `before`, and the cursor of the next page.

    `trail` TENANT is the tenant's own log. PLATFORM is the platform's log, limited to events about `tenant_id` if given.
    Raises UnknownTenant, TenantSuspended, TenantBusy. A page costs the same at any position.
    """
    if trail == PLATFORM:
        return _page(filtered(PlatformEvent.objects.all(), tenant_id=tenant_id), filters, before, limit)
    assert tenant_id is not None  # the view asks for it
    with in_tenant(tenant_id, purpose):
        return _page(TenantEvent.objects.all(), filters, before, limit)


def _page(
    events: Events, filters: Filters, before: int | None, limit: int
) -> tuple[list[dict[str, object]], int | None]:
    found = _matching(events, filters)
    if before is not None:
        found = found.filter(id__lt=before)
    # One extra row tells whether there is a next page.
    rows = list(found.order_by("-id").values()[: limit + 1])
    following = rows[limit - 1]["id"] if len(rows) > limit else None
    return [dict(row) for row in rows[:limit]], following


def _matching(events: Events, filters: Filters) -> Events:
    return filtered(
        events,
        actor_id=filters.actor,
        action=filters.action,
        target_id=filters.target,
        at__gte=filters.since,
        at__lt=filters.until,
    )


def export_events(*, tenant_id: UUID | None, filters: Filters, trail: str = TENANT) -> Iterator[dict[str, object]]:
    """Yield every event of an audit log (the platform's without a tenant), oldest first; the export is audited first.

    With `trail` PLATFORM and a tenant: the platform's events about that tenant. Reads in pages, so memory use
    does not depend on the size. Raises UnknownTenant.
    """
    target = ("tenant", tenant_id) if tenant_id and trail == TENANT else ("trail", PLATFORM)
    record_for_platform("audit.exported", tenant_id=tenant_id, target=target)
    if tenant_id is None or trail == PLATFORM:
        yield from _everything(filtered(PlatformEvent.objects.all(), tenant_id=tenant_id), filters)
        return
    with in_tenant(tenant_id, Purpose.INSPECT):
        yield from _everything(TenantEvent.objects.all(), filters)


def _everything(events: Events, filters: Filters) -> Iterator[dict[str, object]]:
    found = _matching(events, filters)
    last = 0
    while rows := list(found.filter(id__gt=last).order_by("id").values()[:EXPORTED_AT_ONCE]):
        yield from map(dict, rows)
        last = rows[-1]["id"]
