"""Background work: a queue in the global database and the processes that serve it (procrastinate).

Workers ask for work instead of listening for it: LISTEN needs a session, which PgBouncer in transaction mode does not give.
A worker's heartbeat tells the others that it is alive. What a worker without one was doing is queued again, so every
task runs at least once and must be safe to run again after it was killed at any point.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Final, ParamSpec, TypeAlias

import structlog
from django.db import connections
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from procrastinate import JobContext, PsycopgConnector
from procrastinate.app import WorkerOptions
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateEvent, ProcrastinateJob, ProcrastinateWorker
from procrastinate.contrib.django.utils import connector_params
from procrastinate.exceptions import AlreadyEnqueued, ProcrastinateException
from procrastinate.types import JSONValue
from procrastinate.worker import Worker
from prometheus_client import Counter, Histogram
from psycopg import Error as DriverError

from identity_platform.api.metrics import Timed
from identity_platform.tracing import root_span, set_up

log = structlog.get_logger("identity.tasks")

TASK_SECONDS = Histogram(
    "identity_task_seconds",
    "How long background tasks took, by outcome.",
    ["task", "outcome"],
    buckets=(0.1, 1, 10, 60, 300, 1800),
)
# Periodic tasks log their errors and end in order.
PROBLEMS = Counter("identity_task_problems", "Runs of periodic tasks that could not do everything.", ["task"])

# Tells a task whether to stop (`should_abort`), and carries the options of its worker (`additional_context`).
TaskContext: TypeAlias = JobContext

PERIODIC: Final = "periodic"
IS_PAUSED: Final = "is_paused"
# A worker that has sent no heartbeat for this long has ended.
SILENT_AFTER: Final = timedelta(seconds=20)
# After SIGTERM. A task that is still running then is queued again, as after a kill.
FINISH_SECONDS: Final = 8.0
_RECOVERY: Final = "recover_abandoned_tasks"
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


P = ParamSpec("P")
PeriodicTask: TypeAlias = Callable[[TaskContext], None]


def task(name: str, *, queue: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Register a function that workers run when `start` has queued it. Its arguments are JSON values."""

    def register(work: Callable[P, None]) -> Callable[P, None]:
        app.task(name=name, queue=queue)(_with_own_connections(name, work))
        return work

    return register


def periodic_task(name: str, *, pauses: bool = True) -> Callable[[PeriodicTask], PeriodicTask]:
    """Register a function that workers run periodically: on one of all hosts at a time, and queued at most once.

    A run is left out while the worker's `is_paused` (an option of it) says so, unless the task never `pauses`.
    """

    def register(work: PeriodicTask) -> PeriodicTask:
        def run(context: TaskContext, timestamp: int = 0) -> None:
            is_paused = context.additional_context.get(IS_PAUSED)
            if pauses and is_paused is not None and is_paused():
                log.info("task_paused", task=name)
                return
            work(context)

        # A counter that appears with its first problem has never increased for Prometheus.
        PROBLEMS.labels(name)
        registered = app.task(name=name, queue=PERIODIC, lock=name, queueing_lock=name, pass_context=True)
        registered(_with_own_connections(name, run))
        return work

    return register


def _with_own_connections(name: str, work: Callable[P, None]) -> Callable[P, None]:
    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        log.debug("task_started", task=name)
        try:
            with root_span(name), Timed(TASK_SECONDS, name):
                work(*args, **kwargs)
        finally:
            log.debug("task_ended", task=name)
            # The thread may get no other task for long.
            connections.close_all()

    return run


def run_soon(name: str) -> None:
    """Queue a periodic task ahead of its time, unless it waits in the queue already."""
    with suppress(AlreadyEnqueued):
        app.configure_task(name).defer()


def start(name: str, *, lock: str, **arguments: JSONValue) -> None:
    """Queue a task in the open transaction, if there is one. Tasks with the same lock run one after the other."""
    app.configure_task(name, lock=lock).defer(**arguments)


def start_again(name: str, *, lock: str, **arguments: JSONValue) -> None:
    """Queue a task again with new arguments, in place of the entry that an ended worker has left."""
    if not _queue_again(_abandoned().filter(lock=lock), args=arguments):
        start(name, lock=lock, **arguments)


def queued() -> QuerySet[ProcrastinateJob]:
    """Return the tasks that wait, or run in a worker that is alive."""
    runs = Q(status="doing", worker__in=living_workers())
    return ProcrastinateJob.objects.filter(Q(status="todo") | runs)


def is_queued(lock: str) -> bool:
    """Return whether a task with this lock waits, or runs in a worker that is alive."""
    return queued().filter(lock=lock).exists()


@dataclass(frozen=True, slots=True)
class Backlog:
    """The tasks of one queue: those that are due and wait, and those that run."""

    queue: str
    waiting: int
    running: int


def backlogs() -> list[Backlog]:
    """Return the backlog of each queue that has one, in one statement."""
    unfinished = (
        ProcrastinateJob.objects.filter(status__in=["todo", "doing"]).values("queue_name").order_by("queue_name")
    )
    due = Q(status="todo") & (Q(scheduled_at=None) | Q(scheduled_at__lte=Now()))
    rows = unfinished.annotate(
        waiting=Count("id", filter=due),
        running=Count("id", filter=Q(status="doing")),
    )
    return [Backlog(*row) for row in rows.values_list("queue_name", "waiting", "running")]


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A run of a task that ended with an error; what it was started with is left out."""

    task: str
    queue: str
    attempts: int
    at: datetime


def last_failures(most: int) -> list[FailedTask]:
    """Return the last failures that the queue still has, newest first."""
    events = ProcrastinateEvent.objects.filter(type="failed").order_by("-id")
    columns = ("job__task_name", "job__queue_name", "job__attempts", "at")
    return [FailedTask(*row) for row in events.values_list(*columns)[:most]]


def living_workers() -> QuerySet[ProcrastinateWorker]:
    """Return the worker processes that are alive, of all hosts."""
    return ProcrastinateWorker.objects.filter(last_heartbeat__gte=Now() - SILENT_AFTER)


def cron(seconds: float) -> str:
    """Return the crontab entry of an interval, in whole seconds, minutes, hours or days. Days begin at 03:17 UTC."""
    if seconds < _MINUTE:
        return f"* * * * * */{min(max(1, round(seconds)), 59)}"
    if seconds < _HOUR:
        return f"*/{min(round(seconds / _MINUTE), 59)} * * * *"
    if seconds < _DAY:
        return f"0 */{min(round(seconds / _HOUR), 23)} * * *"
    return f"17 3 */{min(round(seconds / _DAY), 31)} * *"


def run_worker(
    queues: Mapping[str, int],
    *,
    every: Mapping[str, float],
    poll_seconds: float,
    options: Mapping[str, object],
    ready: Callable[[], None],
) -> None:
    """Serve the queues until SIGTERM or Ctrl-C. Exits with 1 if the database stays away, for a restart by the supervisor.

    `queues` gives how many tasks of each queue run at once, `every` the seconds between two runs of each periodic task
    (0: never), `options` what tasks find in their context.
    """
    set_up()
    app.periodic_registry.periodic_tasks.clear()
    for name, seconds in {_RECOVERY: SILENT_AFTER.total_seconds(), **every}.items():
        if seconds > 0:
            app.periodic(cron=cron(seconds))(app.tasks[name])
    common: WorkerOptions = {"fetch_job_polling_interval": poll_seconds, "additional_context": dict(options)}
    try:
        workers: list[WorkerOptions] = [{**common, "queues": [name], "concurrency": n} for name, n in queues.items()]
        stopped = asyncio.run(_serve(workers, ready))
    except (ProcrastinateException, DriverError) as problem:
        stopped = False
        log.error("worker_ended", cause=type(problem.__cause__ or problem).__name__)
    if not stopped:
        sys.exit(1)


def _worker(options: WorkerOptions) -> Worker:
    return Worker(app=app, **options)


async def _serve(workers: list[WorkerOptions], ready: Callable[[], None]) -> bool:
    """Run the workers; return whether a signal ended them. Raises the error of the first one that failed."""
    loop = asyncio.get_running_loop()
    stopping = False
    app.perform_import_paths()
    serving = [_worker({**app.worker_defaults, **options}) for options in workers]

    def stop_all() -> None:
        # Not by cancelling their tasks: `asyncio.wait_for` of Python 3.11 loses a cancellation at the moment when it ends.
        for worker in serving:
            worker.stop()

    def stop() -> None:
        nonlocal stopping
        if stopping:
            return
        stopping = True
        stop_all()
        # Waiting for longer would make others believe that this worker has ended, because it sends no heartbeat any more.
        loop.call_later(FINISH_SECONDS, os._exit, 0)

    # The connections of the tasks themselves are Django's; these are for the queue.
    queue = PsycopgConnector(kwargs={**connector_params(), "autocommit": True}, min_size=1, max_size=4)
    with app.replace_connector(queue):
        async with app.open_async():
            running = [asyncio.create_task(worker.run()) for worker in serving]
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            ready()
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if not stopping:
                stop_all()
            ended = await asyncio.gather(*running, return_exceptions=True)
    failed = [problem for problem in ended if isinstance(problem, Exception)]
    if failed and not stopping:
        raise failed[0]
    return stopping


def _abandoned() -> QuerySet[ProcrastinateJob]:
    # The base manager, because the library's own is read-only.
    return ProcrastinateJob._base_manager.filter(status="doing").exclude(worker__in=living_workers())


def _queue_again(entries: QuerySet[ProcrastinateJob], **changes: object) -> int:
    # One conditional UPDATE. The library reads first and then queues each again: of two workers that do so at once, one
    # would start a task that the other has queued, and that runs again by then, a second time.
    return entries.update(status="todo", worker=None, attempts=F("attempts") + 1, **changes)


# Without a lock: one that a killed worker holds would keep all others from taking it back.
@app.task(name=_RECOVERY, queue=PERIODIC, queueing_lock=_RECOVERY)
@partial(_with_own_connections, _RECOVERY)
def recover_abandoned_tasks(timestamp: int = 0) -> None:
    """Queue the tasks of ended workers again, but no periodic task whose next run already waits."""
    waiting = ProcrastinateJob.objects.filter(status="todo", queueing_lock=OuterRef("queueing_lock"))
    _abandoned().filter(Q(task_name=_RECOVERY) | Exists(waiting)).delete()
    if number := _queue_again(_abandoned()):
        log.warning("tasks_recovered", tasks=number)
