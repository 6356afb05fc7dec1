"""Run jobs in a few threads of this process and record their progress in the job's row.

Every kind of job is a resumable action that a command uses too, so a killed job is repaired by running it again. The lock
on the tenant keeps two jobs from running on it at once.
"""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

import structlog
from django.db import DatabaseError, connection, connections, transaction
from django.db.models import Q
from django.utils.timezone import now
from psycopg import Error as DriverError

from console.frame.forms import Fields
from console.jobs.models import DONE, FAILED, RUNNING, SILENT_AFTER, WAITING, Job
from identity_platform.api.errors import ApiError, Conflict, NotFound
from tenants.errors import UpgradeFailed
from tenants.schema import reason_of
from userflow.accounts.models import AdminUser

log = structlog.get_logger("identity.console")

# More jobs at once would take connections and cores from requests.
MAX_RUNNING: Final = 2
HEARTBEAT_SECONDS: Final = 4.0

Report = Callable[[str], None]
Work = Callable[[Job, Report], None]
_kinds: dict[str, Work] = {}


class JobNotRepeatable(Conflict):
    """409: the job is still running or has succeeded."""

    message = "This job is still running or has succeeded, so it cannot be run again."


class UnknownJob(NotFound):
    """404: no job has this id."""

    message = "No job has this id."


def kind_of_job(name: str) -> Callable[[Work], Work]:
    """Register the function of a kind of job. It must be safe to run again after being killed at any point."""

    def register(work: Work) -> Work:
        _kinds[name] = work
        return work

    return register


def begin_job(*, kind: str, by: AdminUser, tenant_id: UUID | None = None, params: Fields | None = None) -> Job:
    """Start a job in the background and return its row, which shows its progress. `params` must hold no secret."""
    job = Job.objects.create(kind=kind, tenant_id=tenant_id, params=params or {}, begun_by=by)
    _submit(job.pk)
    return job


def run_job_again(*, job_id: UUID, by: AdminUser) -> Job:
    """Run a failed or interrupted job again. Raises UnknownJob, JobNotRepeatable."""
    gone = Q(state__in=Job.LIVING, seen_at__lt=now() - SILENT_AFTER)
    # One conditional UPDATE, so that one of two concurrent calls starts the job.
    begun = Job.objects.filter(Q(state=FAILED) | gone, pk=job_id).update(
        state=WAITING, reason="", begun_by=by, seen_at=now(), ended_at=None
    )
    job = Job.objects.filter(pk=job_id).first()
    if job is None:
        raise UnknownJob
    if not begun:
        raise JobNotRepeatable
    _submit(job_id)
    return job


_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()
_here: set[UUID] = set()


def _submit(job_id: UUID) -> None:
    global _pool
    with _lock:
        if _pool is None:
            # Created with the first job: a pool that is created before a fork has no threads after it.
            _pool = ThreadPoolExecutor(MAX_RUNNING, thread_name_prefix="console-job")
        if not _here:
            threading.Thread(target=_heartbeat, daemon=True, name="console-jobs-live").start()
        _here.add(job_id)
        # The context carries the actor and the address to the audit trail.
        _pool.submit(contextvars.copy_context().run, _run, job_id)


def _heartbeat() -> None:
    ended = threading.Event()
    try:
        while True:
            ended.wait(HEARTBEAT_SECONDS)
            with _lock:
                mine = list(_here)
                if not mine:
                    return
            try:
                Job.objects.filter(pk__in=mine, state__in=Job.LIVING).update(seen_at=now())
            except (DatabaseError, DriverError) as problem:
                log.warning("jobs_not_marked", cause=reason_of(problem))
                connection.close()
    finally:
        connections.close_all()


def _run(job_id: UUID) -> None:
    try:
        if not Job.objects.filter(pk=job_id, state=WAITING).update(state=RUNNING, seen_at=now()):
            return
        job = Job.objects.get(pk=job_id)
        reason = _work(job)
        Job.objects.filter(pk=job_id).update(state=FAILED if reason else DONE, reason=reason, ended_at=now())
    except (DatabaseError, DriverError) as problem:
        # The row cannot be written, so the job will be shown as interrupted.
        log.warning("job_not_ended", job=str(job_id), cause=reason_of(problem))
    finally:
        with _lock:
            _here.discard(job_id)
        connections.close_all()


def _work(job: Job) -> str:
    """Run the job; return why it failed, or an empty string."""
    try:
        _kinds[job.kind](job, lambda line: _report(job.pk, line))
    except ApiError as error:
        return " ".join([error.text, *(problem for each in error.messages.values() for problem in each)])
    except UpgradeFailed as problem:
        return str(problem)
    except (DatabaseError, DriverError) as problem:
        return reason_of(problem)
    except OSError as problem:
        return f"{problem.filename or ''} {problem.strerror or type(problem).__name__}".strip()
    except Exception as problem:
        # A bug: record it in the row before the thread ends.
        log.exception("job_failed", job=str(job.pk), kind=job.kind)
        return f"It failed unexpectedly ({type(problem).__name__}). See the log."
    return ""


def _report(job_id: UUID, line: str) -> None:
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=job_id)
        job.lines.append([now().isoformat(timespec="seconds"), line])
        job.seen_at = now()
        job.save(update_fields=["lines", "seen_at"])
