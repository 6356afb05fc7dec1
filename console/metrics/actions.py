"""Collecting the figures: two statements in each tenant's database, one transaction in the global one.

The audit trail is counted from where the last collection ended, and how far it was counted is written in the transaction
that adds what was counted: a collection may be killed anywhere and run again, and several may run at once, without
counting an event twice. Everything else is replaced by what is true now.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.db.models import F, Q
from django.utils.timezone import now

from console.metrics import queries
from console.metrics.models import TenantDay, TenantFigures
from identity_platform.api import daily_counters
from registry.limits import CALLS, REFUSED
from tenants.context import in_tenant, tenant_atomic
from tenants.errors import UnknownTenant
from tenants.models import TenantDatabase
from tenants.schema import why
from tenants.states import ALLOWED, Purpose
from tenants.target import TENANT_ALIAS

LOOKED_AT: Final = [state for state, purposes in ALLOWED.items() if Purpose.INSPECT in purposes]
# Transactions that began before are over by then: a request's statements end after seconds.
SETTLED_SECONDS: Final = 60
LOOK_SECONDS: Final = 60
# Days whose counters are read again; Valkey keeps a few more.
RECENT_DAYS: Final = 3
# Days that are always summed up again, also after a run that was killed before its sums.
SUMMED_DAYS: Final = 31


@dataclass(frozen=True, slots=True)
class Outcome:
    """One tenant's line of the report; `failure` is for operators and holds no people's data."""

    slug: str
    failure: str = ""
    seconds: float = 0.0


def collect_figures(
    *,
    only: Sequence[str] = (),
    jobs: int = 4,
    older_than: float = 0,
    settled: int = SETTLED_SECONDS,
    begun: Callable[[int], None] = lambda total: None,
    progress: Callable[[Outcome], None] = lambda outcome: None,
    until: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Bring the figures of all tenants (or of the slugs in `only`) up to date, `jobs` at a time; gives an outcome each.

    Tenants whose figures are younger than `older_than` seconds are left out, so a killed run goes on where it was. Events
    younger than `settled` seconds wait for the next run: a transaction with an earlier number may still be open. A tenant
    that fails keeps its old figures and the reason; the others are not affected. `until` tells when to stop early.
    Raises UnknownTenant (a slug in `only`).
    """
    todo = _todo(only, older_than)
    begun(len(todo))
    today = now().date()
    since = today - timedelta(days=SUMMED_DAYS)
    outcomes: list[Outcome] = []
    pool = ThreadPoolExecutor(min(jobs, settings.TENANT_CONNECTION_BUDGET), thread_name_prefix="figures")
    try:
        running = [pool.submit(_collect_in_thread, row, settled, until) for row in todo]
        for done in as_completed(running):
            if (result := done.result()) is not None:
                outcome, first = result
                since = min(since, first or since)
                outcomes.append(outcome)
                progress(outcome)
    finally:
        # On Ctrl-C what has not begun is not begun; what runs is over in moments.
        pool.shutdown(wait=True, cancel_futures=True)
    _save_daily_counters()
    queries.sum_days(since)
    TenantDay.objects.filter(day__lt=today - timedelta(days=settings.AUDIT_RETENTION_DAYS)).delete()
    return outcomes


def _todo(only: Sequence[str], older_than: float) -> list[tuple[UUID, str]]:
    """Tenants to look at, those that waited longest first; one statement."""
    found = TenantDatabase.objects.filter(status__in=LOOKED_AT)
    if only:
        found = found.filter(tenant__slug__in=only)
        if missing := set(only) - set(found.values_list("tenant__slug", flat=True)):
            raise UnknownTenant(
                f"No tenant that can be looked into has this slug: {', '.join(sorted(missing))}. "
                "`list_tenants` shows them all with their state."
            )
    if older_than:
        due = now() - timedelta(seconds=older_than)
        found = found.filter(Q(tenant__figures__checked_at=None) | Q(tenant__figures__checked_at__lt=due))
    waited = F("tenant__figures__checked_at").asc(nulls_first=True)
    return list(found.order_by(waited, "pk").values_list("pk", "tenant__slug"))


def _collect_in_thread(
    row: tuple[UUID, str], settled: int, until: Callable[[], bool]
) -> tuple[Outcome, date | None] | None:
    if until():
        return None
    try:
        return _collect(*row, settled)
    finally:
        # A thread's connections are its own; the tenant's went back to the pool.
        connections["default"].close()


def _collect(tenant_id: UUID, slug: str, settled: int) -> tuple[Outcome, date | None]:
    began = time.monotonic()
    first: date | None = None
    failure = ""
    try:
        known, _ = TenantFigures.objects.get_or_create(tenant_id=tenant_id)
        # A trail that has grown long is counted piece by piece; each piece is kept at once.
        for found in _looks(known, settled):
            first = min([*found.days, *found.new_users, *([first] if first else [])], default=None)
            _keep(known, found)
    except Exception as problem:
        # Whatever it is, the other tenants are looked at.
        failure = why(problem)
    if failure:
        try:
            _note_failure(tenant_id, failure)
        except DatabaseError as problem:
            failure = why(problem)
    return Outcome(slug, failure, time.monotonic() - began), first


@dataclass(frozen=True, slots=True)
class _Found:
    """What one look into a tenant's database has found."""

    now: dict[str, Any]
    # What the trail adds to a day.
    days: dict[date, dict[str, int]]
    # What a day's new users are, counted anew.
    new_users: dict[date, int]
    counted_from: date
    upto: int


def _looks(known: TenantFigures, settled: int) -> Iterator[_Found]:
    last = known.last_event_id
    # New users are counted anew from the day of the last collection on, and of all days at the first one.
    day = known.collected_at.date() if known.collected_at else date.min
    while True:
        with in_tenant(known.pk, Purpose.INSPECT), connections[TENANT_ALIAS].cursor() as cursor:
            began = time.perf_counter()
            cursor.execute(queries.CHECK)
            size = cursor.fetchone()
            check_ms = (time.perf_counter() - began) * 1000
            with tenant_atomic():
                # Millions of people are not counted in the time that a request's statement has.
                cursor.execute(f"SET LOCAL statement_timeout = {LOOK_SECONDS * 1000}")
                cursor.execute(queries.LOOK, {"last": last, "settled": settled, "day": day, "piece": queries.PIECE})
                row = cursor.fetchone()
        assert size is not None
        assert row is not None
        users, active, protected, factors, new_users, days, upto, read = row
        yield _Found(
            now={
                "users": users,
                "active_users": active,
                "protected_users": protected,
                "factors": factors,
                "database_bytes": size[0],
                "check_ms": round(check_ms, 2),
            },
            days={date.fromisoformat(d): counts for d, counts in days.items()},
            new_users={date.fromisoformat(d): total for d, total in new_users.items()},
            counted_from=day,
            upto=upto,
        )
        if read < queries.PIECE or upto == last:
            return
        last = upto


def _keep(known: TenantFigures, found: _Found) -> None:
    with transaction.atomic():
        moment = now()
        mine = TenantFigures.objects.filter(pk=known.pk, last_event_id=known.last_event_id)
        if not mine.update(**found.now, last_event_id=found.upto, failure="", checked_at=moment, collected_at=moment):
            # Another collection was faster, or the tenant is gone: what that one has written stands.
            return
        queries.add_to_days(known.pk, found.days, found.new_users, found.counted_from)
    known.last_event_id = found.upto


def _note_failure(tenant_id: UUID, failure: str) -> None:
    # An UPDATE: a tenant that was deleted meanwhile has no figures, and gets none.
    TenantFigures.objects.filter(pk=tenant_id).update(failure=failure[:500], checked_at=now())


def _save_daily_counters() -> None:
    """Keep what Valkey has counted. A count that is lower than the one before was begun anew, and changes nothing."""
    calls, refused = daily_counters.read(CALLS, RECENT_DAYS), daily_counters.read(REFUSED, RECENT_DAYS)
    for day in calls.keys() | refused.keys():
        queries.raise_days(day, calls.get(day, {}), refused.get(day, {}))
