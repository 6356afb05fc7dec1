"""Background tasks of the console: its jobs, and the collection of metrics."""

import structlog

from console.jobs.actions import run_job
from console.metrics.actions import collect_figures
from identity_platform.task_queue import PROBLEMS, TaskContext, periodic_task
from tenants.database_servers.visits import Visits
from tenants.failure_reasons import why

log = structlog.get_logger("identity.console")

_COLLECTING = Visits()

__all__ = ["collect", "run_job"]


@periodic_task("collect_figures")
def collect(context: TaskContext) -> None:
    """Collect the metrics of the tenants whose database was written, those that wait longest first."""
    try:
        if failed := sum(
            bool(outcome.failure) for outcome in collect_figures(until=context.should_abort, visits=_COLLECTING)
        ):
            PROBLEMS.labels("collect_figures").inc()
            log.warning("figures_not_collected", tenants=failed, cause="their pages show the reason")
    except Exception as problem:
        PROBLEMS.labels("collect_figures").inc()
        log.warning("figures_not_collected", cause=why(problem))
