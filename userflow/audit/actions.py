"""Read audit logs: pages for the API and the console, all events for an export."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db.models import Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Greatest

from identity_platform.api.pagination import filtered
from identity_platform.audit.models import PlatformEvent, TenantEvent
from identity_platform.audit.writer import record_for_platform
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.principals import OPERATOR
from userflow.audit.queries import LONGEST_TRANSACTION, first_id_at

TENANT, PLATFORM = "tenant", "platform"
Events = TypeVar("Events", "QuerySet[PlatformEvent]", "QuerySet[TenantEvent]")
EXPORTED_AT_ONCE = 1000
# How many events one page reads at most to fill itself. At 95 % views it needs a thousand.
READ_AT_MOST: Final = 20_000
# Actions that only record that something was read. By their endings: a new one needs no entry here.
VIEWS: Final[tuple[str, ...]] = (".viewed", ".listed", ".searched")


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of events; an absent one matches everything."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None
    # As the actor or as the target.
    person: str | None = None
    # From this moment, up to but not including that one.
    since: datetime | None = None
    until: datetime | None = None
    # False leaves out events that only record that something was read, unless `action` asks for one.
    views: bool = True

    @property
    def hides_views(self) -> bool:
        """Return whether events that only record a read are left out."""
        return not self.views and self.action is None


def visible_event(event: Mapping[str, object], *, to_operator: bool) -> dict[str, object]:
    """Return the event as a reader may see it: only operators see the id and the IP address of an operator."""
    hidden = event["actor_kind"] == OPERATOR and not to_operator
    return {**event, "actor_id": "", "address": ""} if hidden else {**event}


def page_of_events(
    *,
    tenant_id: UUID | None,
    trail: str,
    limit: int,
    filters: Filters,
    before: int | None = None,
    purpose: Purpose = Purpose.READ,
    to_operator: bool = False,
) -> tuple[list[dict[str, object]], int | None]:
    """Return one page of an audit log, newest first, with events before `before`, and the cursor of the next page.

    `trail` TENANT is the tenant's own log. PLATFORM is the platform's log, limited to events about `tenant_id` if given.
    A page costs the same at any position: it reads at most READ_AT_MOST events. If the filters leave out more than
    that, it has fewer events than `limit`, or none, and a cursor that continues the search. Unless `to_operator`, events are
    as `visible_event` shows them, and no filter finds an operator by id.

    Raises UnknownTenant, TenantSuspended, TenantBusy.
    """
    if trail == PLATFORM:
        of_tenant = filtered(PlatformEvent.objects.all(), tenant_id=tenant_id)
        rows, older = _page(_searched(of_tenant, filters, to_operator), filters, before, limit)
    else:
        assert tenant_id is not None  # the view asks for it
        with in_tenant(tenant_id, purpose):
            rows, older = _page(_searched(TenantEvent.objects.all(), filters, to_operator), filters, before, limit)
    return [visible_event(row, to_operator=to_operator) for row in rows], older


def _searched(events: Events, filters: Filters, to_operator: bool) -> Events:
    """Leave out the events of operators where a search for an actor's id would confirm whose they are."""
    actor_id = filters.actor or filters.person
    return events.exclude(actor_kind=OPERATOR, actor_id=actor_id) if actor_id and not to_operator else events


def _page(
    events: Events, filters: Filters, before: int | None, limit: int
) -> tuple[list[dict[str, object]], int | None]:
    events = _of_time(filtered(events, id__lt=before), filters)
    runs = _runs(events, filters)
    matching = [_matching(run, filters) for run in runs]
    ends = []
    if _leaves_out(filters):
        ends = [run.order_by("-id").values("id")[READ_AT_MOST - 1 : READ_AT_MOST] for run in runs]
        floors = [Coalesce(Subquery(end), Value(0)) for end in ends]
        matching = [run.filter(id__gte=Greatest(*floors) if len(floors) > 1 else floors[0]) for run in matching]
    if filters.person is not None:
        # Its own events are in both runs.
        matching[1] = matching[1].exclude(target_id=filters.person)
    # One extra row tells whether there is a next page.
    pages = [run.order_by("-id").values()[: limit + 1] for run in matching]
    rows = list(pages[0] if len(pages) == 1 else pages[0].union(*pages[1:], all=True).order_by("-id")[: limit + 1])
    if len(rows) > limit:
        return [dict(row) for row in rows[:limit]], rows[limit - 1]["id"]
    # Not full: either the log ends here, or the page has read as much as it may.
    read_to = max((row["id"] for row in (ends[0].union(*ends[1:]) if ends else ())), default=None)
    return [dict(row) for row in rows], read_to


def _of_time(events: Events, filters: Filters) -> Events:
    """Narrow the ids to those of the time, so that a page does not read its way there."""
    if filters.since is not None:
        events = events.filter(id__gte=first_id_at(events.model, filters.since, slack=-LONGEST_TRANSACTION))
    if filters.until is not None:
        events = events.filter(id__lt=first_id_at(events.model, filters.until, slack=LONGEST_TRANSACTION))
    return events


def _runs(events: Events, filters: Filters) -> list[Events]:
    """Return the events that a page reads, each run from one index in the order of the ids."""
    if filters.person is not None:
        return [events.filter(target_id=filters.person), events.filter(actor_id=filters.person)]
    if filters.target is not None:
        return [events.filter(target_id=filters.target)]
    if filters.actor is not None:
        return [events.filter(actor_id=filters.actor)]
    return [filtered(events, action=filters.action)]


def _leaves_out(filters: Filters) -> bool:
    """Return whether a page can leave out events of its runs."""
    exact_filters = [filters.target, filters.actor, filters.action]
    several = sum(value is not None for value in exact_filters) > 1
    return several or filters.hides_views or any((filters.person, filters.since, filters.until))


def _matching(events: Events, filters: Filters) -> Events:
    matching = filtered(
        events,
        actor_id=filters.actor,
        action=filters.action,
        target_id=filters.target,
        at__gte=filters.since,
        at__lt=filters.until,
    )
    if filters.hides_views:
        matching = matching.exclude(reduce(or_, (Q(action__endswith=ending) for ending in VIEWS)))
    return matching


def export_events(
    *,
    tenant_id: UUID | None,
    filters: Filters,
    trail: str = TENANT,
    purpose: Purpose = Purpose.INSPECT,
    to_operator: bool = False,
) -> Iterator[dict[str, object]]:
    """Yield every event of an audit log (the platform's without a tenant), oldest first; the export is audited first.

    With `trail` PLATFORM and a tenant: the platform's events about that tenant. Reads in pages, so memory use
    does not depend on the size, and enters the tenant for each page only: the caller may be elsewhere between two events.
    `to_operator` as in `page_of_events`.
    Raises UnknownTenant, TenantSuspended, TenantBusy.
    """
    is_tenant_trail = tenant_id is not None and trail == TENANT
    target = ("tenant", tenant_id) if is_tenant_trail else ("trail", PLATFORM)
    record_for_platform("audit.exported", tenant_id=tenant_id, target=target)
    last = 0
    while rows := _exported(tenant_id, filters, last, purpose if is_tenant_trail else None, to_operator):
        yield from (visible_event(row, to_operator=to_operator) for row in rows)
        last = rows[-1]["id"]


def _exported(
    tenant_id: UUID | None, filters: Filters, last: int, purpose: Purpose | None, to_operator: bool
) -> Sequence[dict[str, Any]]:
    """Return the next events of an export: the tenant's own if it is to be entered for a purpose, else the platform's."""
    if tenant_id is None or purpose is None:
        return _after(
            last, _searched(filtered(PlatformEvent.objects.all(), tenant_id=tenant_id), filters, to_operator), filters
        )
    with in_tenant(tenant_id, purpose):
        return _after(last, _searched(TenantEvent.objects.all(), filters, to_operator), filters)


def _after(last: int, events: Events, filters: Filters) -> Sequence[dict[str, Any]]:
    matching = _matching(_of_time(events.filter(id__gt=last), filters), filters)
    if filters.person is not None:
        matching = matching.filter(Q(target_id=filters.person) | Q(actor_id=filters.person))
    return [dict(row) for row in matching.order_by("id").values()[:EXPORTED_AT_ONCE]]
