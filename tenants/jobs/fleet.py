"""Migrate all tenants to this code's schema: in parallel per server, one transaction per tenant, continuing after failures.

Each mapping stores the tenant's schema version, so a run with nothing to do is one statement. The next run continues after a
killed one: it takes up tenants that are `migrating` without a lock.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Q

from identity_platform.api.errors import ApiError
from identity_platform.audit.writer import record_for_platform
from tenants import job_steps
from tenants.copies import databases
from tenants.database_servers import marks
from tenants.entering.recorded_upgrades import Applied, Recording
from tenants.entering.schema import schema_version, upgrade
from tenants.entering.target import DatabaseTarget
from tenants.errors import JobRunning, UnknownTenant, UpgradeFailed, WrongState
from tenants.failure_reasons import why
from tenants.jobs.parallel import on_each_server
from tenants.lifecycle.transitions import change_state
from tenants.models import TenantDatabase
from tenants.records import reconciling
from tenants.records.tenant_records import changing_tenant
from tenants.signals import tenant_migrated
from tenants.states import State

# Suspended tenants are migrated as well, or they could not be resumed; they stay suspended.
# The migration that creates the table of the mark.
MARKED_SINCE = "tenants.0016_fences_and_former_slugs"
MIGRATED = (State.ACTIVE, State.SUSPENDED, State.MIGRATING)


class Result(StrEnum):
    """How a tenant's migration ended."""

    MIGRATED = "migrated"
    FAILED = "failed"
    # Another job has the lock, or has migrated it already.
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One tenant's line in the report. `reason` is for operators and contains no user data."""

    tenant_id: UUID
    slug: str
    server: str
    result: Result
    reason: str = ""
    seconds: float = 0.0
    # Whether a migration failed, as opposed to an unreachable database.
    by_migration: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    outcomes: tuple[Outcome, ...]
    # Tenants that were not tried because the canary failed.
    not_tried: int = 0

    @property
    def failed(self) -> list[Outcome]:
        """The tenants whose migration failed and was rolled back."""
        return [outcome for outcome in self.outcomes if outcome.result is Result.FAILED]

    def count(self, result: Result) -> int:
        """Return how many had this result."""
        return sum(outcome.result is result for outcome in self.outcomes)


def tenants_behind(only: Sequence[str] = ()) -> list[TenantDatabase]:
    """Return the tenants that a run would migrate, the canary first. One statement for any number of tenants.

    `only` limits them to these slugs. A tenant that failed the last time is not the canary: it would stop all others.
    Raises UnknownTenant.
    """
    behind = TenantDatabase.objects.select_related("tenant", "server").filter(status__in=MIGRATED)
    behind = behind.filter(~Q(schema_version=schema_version()) | Q(status=State.MIGRATING))
    if only:
        known = set(TenantDatabase.objects.filter(tenant__slug__in=only).values_list("tenant__slug", flat=True))
        if missing := sorted(set(only) - known):
            raise UnknownTenant(f"No tenant has the slug {', '.join(missing)}. `list_tenants` shows all tenants.")
        behind = behind.filter(tenant__slug__in=only)
    return sorted(behind, key=lambda mapping: (bool(mapping.reason), mapping.tenant.created_at, mapping.pk))


def migrate_tenants(
    *,
    jobs: int = 2,
    only: Sequence[str] = (),
    start: Callable[[int], None] = lambda total: None,
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Report:
    """Migrate every tenant that is behind, `jobs` at a time on each server; return the report.

    The first reachable tenant is the canary: if its migrations fail, the others are not tried. After that, a failing tenant
    is rolled back and does not stop the others; its `reason` has the error, and the next run tries it again. `start` gets
    the number of tenants, `progress` each outcome. Raises UnknownTenant (a slug in `only`).
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
    recordings: dict[Applied, Recording] = {}
    while others:
        canary = _migrate(others.pop(0), recordings)
        note(canary)
        if canary.by_migration:
            return Report(tuple(outcomes), not_tried=len(others))
        if canary.result is not Result.FAILED:
            break
        # Prefer a next canary on a server that has not failed yet.
        unreachable = {outcome.server for outcome in outcomes}
        others.sort(key=lambda mapping: mapping.server.name in unreachable)
    for outcome in on_each_server(others, jobs, partial(_migrate, recordings=recordings)):
        note(outcome)
    return Report(tuple(outcomes))


def _migrate(mapping: TenantDatabase, recordings: dict[Applied, Recording]) -> Outcome:
    began = time.monotonic()

    def ended(result: Result, reason: str = "", *, by_migration: bool = False) -> Outcome:
        seconds = time.monotonic() - began
        return Outcome(mapping.pk, mapping.tenant.slug, mapping.server.name, result, reason, seconds, by_migration)

    try:
        with databases.job_lock(mapping.server, mapping.pk):
            return ended(*_migrate_alone(mapping, recordings))
    except JobRunning:
        return ended(Result.SKIPPED, "another job is running")
    except UpgradeFailed as failure:
        return ended(Result.FAILED, str(failure), by_migration=True)
    except Exception as problem:
        # For example, the server is unreachable. The next run tries again.
        return ended(Result.FAILED, why(problem))


def _mark(mapping: TenantDatabase, database: str) -> None:
    """Mark a database from before the marks as the tenant's. Raises UpgradeFailed if it has another tenant's mark."""
    mark = marks.stamp_unmarked(mapping.server, database, mapping.pk)
    if mark.tenant_id != mapping.pk:
        raise UpgradeFailed(f"The database {database} belongs to {mark.owner}. Nothing but its schema was changed.")


def _migrate_alone(mapping: TenantDatabase, recordings: dict[Applied, Recording]) -> tuple[Result, str]:
    """Migrate while holding the tenant's lock. Stores a failure in the mapping's `reason`, then raises it."""
    current = schema_version()
    stored_mapping = TenantDatabase.objects.get(pk=mapping.pk)
    if stored_mapping.status not in MIGRATED or (
        stored_mapping.schema_version == current and stored_mapping.status != State.MIGRATING
    ):
        return Result.SKIPPED, "nothing left to do"
    if stored_mapping.status == State.ACTIVE:
        # If it was suspended meanwhile, it is migrated in that state.
        with suppress(WrongState):
            change_state(stored_mapping.pk, State.MIGRATING, only_from=State.ACTIVE, by_job=True)
    job_steps.completed("migrating")
    problem: UpgradeFailed | DatabaseError | ApiError | None = None
    reason, ran = "", []
    try:
        ran = upgrade(DatabaseTarget.for_maintenance(mapping.server, stored_mapping.name), recordings)
        if not ran or MARKED_SINCE in ran:
            _mark(mapping, stored_mapping.name)
        # A database of the release before has none.
        reconciling.apply_all(stored_mapping.pk, direct=True)
    except (UpgradeFailed, DatabaseError, ApiError) as failure:
        problem, reason = failure, why(failure)
    job_steps.completed("migrated")
    fields = {"reason": reason} if reason else {"reason": "", "schema_version": current}
    rows = TenantDatabase.objects.filter(pk=stored_mapping.pk)
    with changing_tenant(stored_mapping.pk, direct=True, may_lag=True):
        if not rows.filter(status=State.MIGRATING).update(status=State.ACTIVE, **fields):
            rows.update(**fields)
    record_for_platform(
        "tenant.migrated",
        tenant_id=stored_mapping.pk,
        target=("tenant", stored_mapping.pk),
        outcome="failed" if reason else "success",
        details={"reason": reason} if reason else {"schema": current, "migrations": len(ran)},
    )
    if problem is not None:
        raise problem
    tenant_migrated.send(sender=migrate_tenants, tenant_id=stored_mapping.pk)
    return Result.MIGRATED, ""
