"""Bringing all tenants to this code's schema: in parallel per server, one transaction a tenant, past those that fail.

The version that a tenant has is stored with its mapping, so a run with nothing to do is one statement, and a run that
was killed goes on where it was: what it left `migrating` without a lock is taken up again.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from django.db import DatabaseError, connections
from django.db.models import Q

from identity_platform.audit.writer import record_for_platform
from tenants import databases, steps
from tenants.errors import JobRunning, UnknownTenant, UpgradeFailed, WrongState
from tenants.models import DatabaseServer, TenantDatabase
from tenants.provisioning import change_state
from tenants.schema import schema_version, upgrade, why
from tenants.states import State
from tenants.target import DatabaseTarget

# Suspended tenants are migrated as well, or they could not be resumed; they stay suspended.
MIGRATED = (State.ACTIVE, State.SUSPENDED, State.MIGRATING)


class Result(StrEnum):
    """How a tenant's migration ended."""

    MIGRATED = "migrated"
    FAILED = "failed"
    # Somebody else is at it, or it needs it no more.
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One tenant's line in the report. `reason` is for operators and holds no people's data."""

    tenant_id: UUID
    slug: str
    server: str
    result: Result
    reason: str = ""
    seconds: float = 0.0
    # Whether the migrations themselves failed. A database that cannot be reached says nothing about them.
    by_migration: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has done."""

    outcomes: tuple[Outcome, ...]
    # Tenants that were not tried because the canary failed.
    not_tried: int = 0

    @property
    def failed(self) -> list[Outcome]:
        """The tenants that are as they were before."""
        return [outcome for outcome in self.outcomes if outcome.result is Result.FAILED]

    def count(self, result: Result) -> int:
        """How many ended so."""
        return sum(outcome.result is result for outcome in self.outcomes)


def tenants_behind(only: Sequence[str] = ()) -> list[TenantDatabase]:
    """The tenants that a run would take up, the canary first: one statement, whatever the size of the fleet.

    `only` names slugs; UnknownTenant names one that there is not. A tenant that failed the last time is no canary: it
    would stop all others.
    """
    behind = TenantDatabase.objects.select_related("tenant", "server").filter(status__in=MIGRATED)
    behind = behind.filter(~Q(schema_version=schema_version()) | Q(status=State.MIGRATING))
    if only:
        known = set(TenantDatabase.objects.filter(tenant__slug__in=only).values_list("tenant__slug", flat=True))
        if missing := sorted(set(only) - known):
            raise UnknownTenant(f"No tenant has the slug {', '.join(missing)}: `list_tenants` shows them all.")
        behind = behind.filter(tenant__slug__in=only)
    return sorted(behind, key=lambda mapping: (bool(mapping.reason), mapping.tenant.created_at, mapping.pk))


def migrate_tenants(
    *,
    jobs: int = 2,
    only: Sequence[str] = (),
    start: Callable[[int], None] = lambda total: None,
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Report:
    """Migrate every tenant that is behind, `jobs` at a time on each server; gives the report.

    The first one that can be reached is the canary: if its migrations fail, the others are not tried. After that a
    failing tenant stops nobody. It stays as it was, its `reason` says why, and the next run tries it again. `start` gets
    the number of tenants, `progress` each outcome as it comes. Raises UnknownTenant (a slug in `only`).
    """
    behind = tenants_behind(only)
    start(len(behind))
    if not behind:
        return Report(())
    outcomes: list[Outcome] = []

    def note(outcome: Outcome) -> None:
        outcomes.append(outcome)
        progress(outcome)

    others = list(behind)
    while others:
        canary = _migrate(others.pop(0))
        note(canary)
        if canary.by_migration:
            return Report(tuple(outcomes), not_tried=len(others))
        if canary.result is not Result.FAILED:
            break
        # The next canary is on a server that has not failed yet, if there is one.
        silent = {outcome.server for outcome in outcomes}
        others.sort(key=lambda mapping: mapping.server.name in silent)
    by_server: dict[DatabaseServer, list[TenantDatabase]] = defaultdict(list)
    for mapping in others:
        by_server[mapping.server].append(mapping)
    with ExitStack() as pools:
        running: list[Future[Outcome]] = []
        for server, mappings in by_server.items():
            pool = pools.enter_context(ThreadPoolExecutor(jobs, thread_name_prefix=f"migrate-{server.name}"))
            # On Ctrl-C what has not begun is not begun; what runs is one transaction and may end.
            pools.callback(pool.shutdown, wait=True, cancel_futures=True)
            running += [pool.submit(_migrate_in_thread, mapping) for mapping in mappings]
        for done in as_completed(running):
            note(done.result())
    return Report(tuple(outcomes))


def _migrate_in_thread(mapping: TenantDatabase) -> Outcome:
    try:
        return _migrate(mapping)
    finally:
        # A thread's connections are its own; nobody closes them when it ends.
        connections.close_all()


def _migrate(mapping: TenantDatabase) -> Outcome:
    began = time.monotonic()

    def ended(result: Result, reason: str = "", *, by_migration: bool = False) -> Outcome:
        seconds = time.monotonic() - began
        return Outcome(mapping.pk, mapping.tenant.slug, mapping.server.name, result, reason, seconds, by_migration)

    try:
        with databases.job_lock(mapping.server, mapping.pk):
            return ended(*_migrate_alone(mapping))
    except JobRunning:
        return ended(Result.SKIPPED, "another job is working on it")
    except UpgradeFailed as failure:
        return ended(Result.FAILED, str(failure), by_migration=True)
    except Exception as problem:
        # The server does not answer, for one: nothing was begun, or the next run takes it up again.
        return ended(Result.FAILED, why(problem))


def _migrate_alone(mapping: TenantDatabase) -> tuple[Result, str]:
    """Migrate while holding the tenant's lock. Raises what failed, once the mapping's `reason` says so."""
    current = schema_version()
    found = TenantDatabase.objects.get(pk=mapping.pk)
    if found.status not in MIGRATED or (found.schema_version == current and found.status != State.MIGRATING):
        return Result.SKIPPED, "nothing left to do"
    if found.status == State.ACTIVE:
        # Suspended at this very moment: then it is migrated as a suspended one.
        with suppress(WrongState):
            change_state(found.pk, State.MIGRATING, only_from=State.ACTIVE)
    steps.completed("migrating")
    problem: UpgradeFailed | DatabaseError | None = None
    reason, ran = "", []
    try:
        ran = upgrade(DatabaseTarget.for_maintenance(mapping.server, found.name))
    except (UpgradeFailed, DatabaseError) as failure:
        problem, reason = failure, why(failure)
    steps.completed("migrated")
    fields = {"reason": reason} if reason else {"reason": "", "schema_version": current}
    rows = TenantDatabase.objects.filter(pk=found.pk)
    if not rows.filter(status=State.MIGRATING).update(status=State.ACTIVE, **fields):
        rows.update(**fields)
    record_for_platform(
        "tenant.migrated",
        tenant_id=found.pk,
        target=("tenant", found.pk),
        outcome="failed" if reason else "success",
        details={"reason": reason} if reason else {"schema": current, "migrations": len(ran)},
    )
    if problem is not None:
        raise problem
    return Result.MIGRATED, ""
