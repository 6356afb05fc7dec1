"""Collect metrics: two statements in each tenant's database, one transaction in the global one.

The audit log is counted from the end of the last collection, and the new position is written in the transaction that
adds the counts. So a collection can be killed at any point and run again, and several can run at once, without counting an
event twice. All other metrics are replaced by current values.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.db.models import F, Q
from django.utils.timezone import now

from console.metrics import queries
from console.metrics.models import TenantDay, TenantFigures
from identity_platform.api import daily_counters
from registry.limits import CALLS, REFUSED
from tenants.database_servers.visits import Visits
from tenants.entering.context import in_tenant
from tenants.errors import UnknownTenant
from tenants.failure_reasons import why
from tenants.models import TenantDatabase
from tenants.states import ALLOWED, Purpose
from userflow.mail_delivery.sending import wakeups as mail_wakeups

COLLECTED_STATES: Final = [state for state, purposes in ALLOWED.items() if Purpose.INSPECT in purposes]
# Older transactions have ended: a request's statements time out after seconds.
SETTLED_SECONDS: Final = 60
# Days whose counters are read again. Valkey keeps a few more.
RECENT_DAYS: Final = 3
# Days that are always summed again, in case a run was killed before its sums.
SUMMED_DAYS: Final = 31
# Rejected sign-ins of a day are unusual if there are at least so many, and so many times the average of the days before.
MANY_REJECTIONS: Final = 50
UNUSUAL_TIMES: Final = 4
USUAL_DAYS: Final = 14
ROWS_AT_ONCE: Final = 1000
# The metrics that a collection replaces: fields of both.
_CURRENT: Final = {field.name for field in TenantFigures._meta.fields} & set(queries.Collected.__slots__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one tenant. `failure` is shown to operators and holds no personal data."""

    tenant_id: UUID
    slug: str
    failure: str = ""
    seconds: float = 0.0
    # Mails or webhook messages are pending: they become overdue by time alone, and their wake-up may be lost.
    has_pending: bool = False


def collect_figures(
    *,
    only: Sequence[str] = (),
    jobs: int = 4,
    older_than: float = 0,
    settled: int = SETTLED_SECONDS,
    begun: Callable[[int], None] = lambda total: None,
    progress: Callable[[Outcome], None] = lambda outcome: None,
    until: Callable[[], bool] = lambda: False,
    visits: Visits | None = None,
) -> list[Outcome]:
    """Update the metrics of all tenants (or of the slugs in `only`), `jobs` at a time; return the outcomes.

    Skips tenants whose metrics are younger than `older_than` seconds, so a killed run continues where it ended. Events
    younger than `settled` seconds wait for the next run: a transaction with a lower number may still be open. A tenant
    that fails keeps its old metrics and the reason. `until` tells when to stop early. With `visits`, the metrics of tenants
    whose database was not written since the last visit are up to date, and the outcomes are of the others.
    Raises UnknownTenant (a slug in `only`).
    """
    todo = _todo(only, older_than)
    if visits:
        todo = _changed(todo, visits)
    begun(len(todo))
    today = now().date()
    since = today - timedelta(days=SUMMED_DAYS)
    outcomes: list[Outcome] = []
    pool = ThreadPoolExecutor(min(jobs, settings.BASE_CONNECTION_BUDGET), thread_name_prefix="figures")
    try:
        running = [pool.submit(_collect_in_thread, row, settled, until) for row in todo]
        for done in as_completed(running):
            if (result := done.result()) is not None:
                outcome, first = result
                since = min(since, first or since)
                if visits and not outcome.failure and not outcome.has_pending:
                    visits.visited(outcome.tenant_id)
                outcomes.append(outcome)
                progress(outcome)
    finally:
        # On Ctrl-C, pending tenants are skipped and running ones end within moments.
        pool.shutdown(wait=True, cancel_futures=True)
    _save_daily_counters()
    queries.sum_days(since)
    TenantDay.objects.filter(day__lt=today - timedelta(days=settings.AUDIT_RETENTION_DAYS)).delete()
    return outcomes


def _todo(only: Sequence[str], older_than: float) -> list[tuple[UUID, str]]:
    """Return the tenants to collect, longest waiting first, in one statement."""
    databases = TenantDatabase.objects.filter(status__in=COLLECTED_STATES)
    if only:
        databases = databases.filter(tenant__slug__in=only)
        if missing := set(only) - set(databases.values_list("tenant__slug", flat=True)):
            raise UnknownTenant(
                f"No tenant with a readable database has this slug: {', '.join(sorted(missing))}. "
                "`list_tenants` shows them all with their state."
            )
    if older_than:
        due = now() - timedelta(seconds=older_than)
        databases = databases.filter(Q(tenant__figures__checked_at=None) | Q(tenant__figures__checked_at__lt=due))
    waited = F("tenant__figures__checked_at").asc(nulls_first=True)
    return list(databases.order_by(waited, "pk").values_list("pk", "tenant__slug"))


def _changed(todo: list[tuple[UUID, str]], visits: Visits) -> list[tuple[UUID, str]]:
    """Note that the metrics of unchanged tenants are those of this moment, and return the other tenants."""
    unchanged = visits.unchanged()
    moment = now()
    current = [tenant_id for tenant_id, _ in todo if tenant_id in unchanged]
    for start in range(0, len(current), ROWS_AT_ONCE):
        rows = TenantFigures.objects.filter(pk__in=current[start : start + ROWS_AT_ONCE])
        rows.update(checked_at=moment, collected_at=moment)
    return [row for row in todo if row[0] not in unchanged]


def _collect_in_thread(
    row: tuple[UUID, str], settled: int, until: Callable[[], bool]
) -> tuple[Outcome, date | None] | None:
    if until():
        return None
    try:
        return _collect(*row, settled)
    finally:
        # Connections belong to the thread; the tenant's went back to the pool.
        connections["default"].close()


def _collect(tenant_id: UUID, slug: str, settled: int) -> tuple[Outcome, date | None]:
    began = time.monotonic()
    first: date | None = None
    failure = ""
    has_pending = False
    try:
        known, _ = TenantFigures.objects.get_or_create(tenant_id=tenant_id)
        # A long trail is counted in pieces, each of which is saved at once.
        for collected in _collected(known, settled):
            first = min([*map(date.fromisoformat, collected.by_day()), *([first] if first else [])], default=None)
            _keep(known, collected)
            has_pending = bool(collected.pending_mails or collected.pending_messages)
    except Exception as problem:
        # A failure of one tenant must not stop the others.
        failure = why(problem)
    if failure:
        try:
            _note_failure(tenant_id, failure)
        except DatabaseError as problem:
            failure = why(problem)
    return Outcome(tenant_id, slug, failure, time.monotonic() - began, has_pending), first


def _collected(known: TenantFigures, settled: int) -> Iterator[queries.Collected]:
    last = known.last_event_id
    # New users are counted again from the day of the last collection on, the first time for all days.
    day = known.collected_at.date() if known.collected_at else date.min
    while True:
        with in_tenant(known.pk, Purpose.INSPECT):
            collected = queries.collect(last=last, settled=settled, day=day)
        yield collected
        if collected.events_read < queries.PIECE or collected.upto == last:
            return
        last = collected.upto


def _keep(known: TenantFigures, collected: queries.Collected) -> None:
    with transaction.atomic():
        moment = now()
        current = {name: getattr(collected, name) for name in _CURRENT}
        unchanged = TenantFigures.objects.filter(pk=known.pk, last_event_id=known.last_event_id)
        if not unchanged.update(
            **current, last_event_id=collected.upto, failure="", checked_at=moment, collected_at=moment
        ):
            # Another collection was faster, or the tenant was deleted: keep what it has written.
            return
        queries.add_to_days(known.pk, collected)
        rejected = _unusual_rejections(known.pk)
        marked = bool(collected.failing_endpoints or collected.overdue_endpoints or rejected)
        TenantFigures.objects.filter(pk=known.pk).update(rejected_sign_ins=rejected, needs_attention=marked)
    known.last_event_id = collected.upto
    if collected.pending_mails:
        # Their wake-up may be lost.
        mail_wakeups.wake(str(known.pk))


def _unusual_rejections(tenant_id: UUID) -> int:
    """Return the rejected sign-ins of the worse of the last two days if there were unusually many, else 0."""
    yesterday = now().date() - timedelta(days=1)
    compared = TenantDay.objects.filter(tenant_id=tenant_id, day__gte=yesterday - timedelta(days=USUAL_DAYS))
    failures_by_day = list(compared.values_list("day", "failures"))
    worst = max((failures for day, failures in failures_by_day if day >= yesterday), default=0)
    usual = sum(failures for day, failures in failures_by_day if day < yesterday) / USUAL_DAYS
    return worst if worst >= MANY_REJECTIONS and worst > UNUSUAL_TIMES * usual else 0


def _note_failure(tenant_id: UUID, failure: str) -> None:
    # An UPDATE, so that a tenant that was deleted meanwhile gets no row.
    TenantFigures.objects.filter(pk=tenant_id).update(failure=failure[:500], checked_at=now())


def _save_daily_counters() -> None:
    """Save the counters of Valkey. A counter that is lower than the saved one was reset, and changes nothing."""
    calls, refused = daily_counters.read(CALLS, RECENT_DAYS), daily_counters.read(REFUSED, RECENT_DAYS)
    for day in calls.keys() | refused.keys():
        queries.raise_days(day, calls.get(day, {}), refused.get(day, {}))
