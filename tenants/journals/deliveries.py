"""Deliver what tenants' databases have noted for the global one: revocations, and entries of the index of end users.

Triggers write a row beside each change, in its transaction, so no statement can pass them by. Requests of operators and tenant
admins, jobs and commands deliver the rows when they leave the tenant. Those of end users and applications use the tenant's
database only: they wake `deliver_events`, which delivers within a second. What both have left, the periodic task delivers. A
restore and a deletion deliver revocations before they begin.
"""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

import structlog
from django.db import close_old_connections, connections, transaction

from identity_platform.hooks import Hook
from identity_platform.postgresql.statement_timeout import limited
from identity_platform.wakeups import Wakeups
from tenants import operating_modes
from tenants.entering import lookup
from tenants.entering.router import GLOBAL_ALIAS
from tenants.errors import UnknownTenant
from tenants.failure_reasons import why
from tenants.models import TenantDatabase
from tenants.states import Purpose, allowing

log = structlog.get_logger("identity.tenants")


# Each delivers rows of one kind: of this tenant, so many `batches` at most (None: all). Returns whether more wait.
deliveries: Final[Hook[..., bool]] = Hook()
wakeups: Final = Wakeups("deliveries")

# Threads of `deliver_events`: a database that does not respond holds up one of them, for a limited time.
THREADS: Final = 2
STATEMENT_SECONDS: Final = 10.0
# What a request or a wake-up delivers at most of a change of many rows; the rest follows in a moment.
MOST_BATCHES: Final = 3
MORE_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 0.2
# After an error of one of the databases.
RETRY_SECONDS: Final = 30.0


def deliver_noted(sender: object, *, tenant_id: UUID, **_: object) -> None:
    """Deliver what transactions of this thread have just noted, or wake `deliver_events`; the receiver of `rows_noted`."""
    if not lookup.is_managing():
        if wakeups.wake(str(tenant_id)):
            return
        # Without Valkey no other process is told.
    else:
        # If this process is killed, or the caller's transaction in the global database is rolled back.
        wakeups.wake(str(tenant_id), seconds=RETRY_SECONDS)
    try:
        # After that transaction: its rollback would take back what is delivered.
        transaction.on_commit(partial(_deliver_or_log, tenant_id), using=GLOBAL_ALIAS)
    except Exception as problem:
        # The global database is away.
        _log(tenant_id, problem)


def deliver_all(*, tenants: Collection[UUID] | None = None, stop: Callable[[], bool] = lambda: False) -> list[str]:
    """Deliver what waits in any tenant's database; return error messages. `stop` returns whether to end early."""
    mappings = TenantDatabase.objects.filter(status__in=allowing(Purpose.RECORD)).select_related("tenant")
    problems = []
    for mapping in mappings if tenants is None else mappings.filter(pk__in=tenants):
        if stop():
            break
        try:
            with limited(STATEMENT_SECONDS):
                deliveries.call(mapping.pk)
        except Exception as problem:
            problems.append(f"{mapping.tenant.slug}: {why(problem)}")
    return problems


def run(ending: Callable[[], bool]) -> None:
    """Deliver for the tenants whose requests have woken this process, until `ending` returns True."""
    try:
        while not ending():
            if operating_modes.is_background_paused() or not deliver_due():
                time.sleep(IDLE_SECONDS)
    finally:
        connections.close_all()


def deliver_due() -> bool:
    """Deliver for one tenant that is due now; return whether there was one. Errors are logged."""
    # One at a time: what a killed process has taken waits for the periodic task.
    for member in wakeups.take_due(1):
        close_old_connections()
        with suppress(ValueError), limited(STATEMENT_SECONDS):
            _deliver_or_log(UUID(member))
        return True
    return False


def _deliver_or_log(tenant_id: UUID) -> None:
    """Deliver a tenant's rows, and wake `deliver_events` for what is left."""
    try:
        if any(deliveries.call(tenant_id, batches=MOST_BATCHES)):
            wakeups.wake(str(tenant_id), seconds=MORE_SECONDS)
    except UnknownTenant:
        pass
    except Exception as problem:
        _log(tenant_id, problem)
        wakeups.wake(str(tenant_id), seconds=RETRY_SECONDS)


def _log(tenant_id: UUID, problem: Exception) -> None:
    # The change itself is committed, and its rows wait beside it.
    log.warning("noted_rows_not_delivered", tenant=str(tenant_id), cause=why(problem), next="deliver_noted_rows")
