"""Periodic tasks for all tenants. Each logs its errors, and its next run tries again."""

import structlog

from identity_platform.task_queue import PROBLEMS, TaskContext, periodic_task
from tenants.database_servers import server_health
from tenants.database_servers.visits import Visits
from tenants.errors import InstallationFenced
from tenants.failure_reasons import why
from tenants.journals import audit_trails, deliveries
from tenants.lifecycle import retention, warm_pool
from tenants.middleware import rejections
from tenants.records import reconciling

log = structlog.get_logger("identity.tenants")

SEAL, PURGE, CHECK = "seal_audit_trails", "purge_expired_rows", "check_database_servers"
DELIVER, RECORDS = "deliver_noted_rows", "apply_records"
_SEALING = Visits()
_RECORDS = reconciling.Round()


@periodic_task(warm_pool.REFILL)
def refill(context: TaskContext) -> None:
    """Create missing spare databases. Meanwhile new tenants take longer."""
    try:
        made, problems = warm_pool.refill_all(int(context.additional_context["warm_pool"]), until=context.should_abort)
    except Exception as problem:
        made, problems = 0, [why(problem)]
    if made:
        log.info("warm_databases_made", made=made)
    if problems:
        PROBLEMS.labels(warm_pool.REFILL).inc()
        log.warning("warm_pool_not_filled", servers=len(problems), cause=problems[0])


@periodic_task(SEAL)
def seal(context: TaskContext) -> None:
    """Seal new audit events of the trails of all tenants whose database was written."""
    try:
        # Before sealing, so that this round covers these events.
        rejections.record_leftovers()
        events, problems = audit_trails.seal_all(until=context.should_abort, visits=_SEALING)
        if problems:
            PROBLEMS.labels(SEAL).inc()
            log.warning("audit_trails_not_sealed", trails=len(problems), first=problems[0])
        if events:
            log.info("audit_events_sealed", events=events)
    except Exception as problem:
        PROBLEMS.labels(SEAL).inc()
        log.warning("audit_trails_not_sealed", cause=why(problem))


@periodic_task(PURGE)
def purge(context: TaskContext) -> None:
    """Delete expired rows, as `purge_expired` does."""
    try:
        if problems := retention.purge_all(until=context.should_abort):
            PROBLEMS.labels(PURGE).inc()
            log.warning("expired_rows_stay", owners=len(problems), first=problems[0])
    except Exception as problem:
        PROBLEMS.labels(PURGE).inc()
        log.warning("expired_rows_stay", cause=why(problem))


# Its metrics show operators how the servers are during their work.
@periodic_task(CHECK, pauses=False)
def check_servers(context: TaskContext) -> None:
    """Check every database server, for the metrics."""
    try:
        silent = server_health.check_servers(until=context.should_abort)
    except InstallationFenced:
        # Logged with its reasons. Every other task is rejected from now on.
        PROBLEMS.labels(CHECK).inc()
        return
    if silent:
        PROBLEMS.labels(CHECK).inc()
        log.warning("database_servers_silent", servers=silent)


@periodic_task(DELIVER)
def deliver_noted_rows(context: TaskContext) -> None:
    """Deliver revocations and entries of the index of end users that wait in tenants' databases."""
    try:
        if problems := deliveries.deliver_all(stop=context.should_abort):
            PROBLEMS.labels(DELIVER).inc()
            log.warning("noted_rows_not_delivered", tenants=len(problems), first=problems[0])
    except Exception as problem:
        PROBLEMS.labels(DELIVER).inc()
        log.warning("noted_rows_not_delivered", cause=why(problem))


@periodic_task(RECORDS)
def apply_records(context: TaskContext) -> None:
    """Write records of tenants and clients into databases that were away when these changed, or after an interruption."""
    try:
        written, problems = _RECORDS.apply_next(until=context.should_abort)
        if written:
            log.info("records_applied", records=written)
        if problems:
            PROBLEMS.labels(RECORDS).inc()
            log.warning("records_not_applied", tenants=len(problems), first=problems[0])
    except Exception as problem:
        PROBLEMS.labels(RECORDS).inc()
        log.warning("records_not_applied", cause=why(problem))
