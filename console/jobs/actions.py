"""Running jobs: in a few threads of the process that was asked, told about in the job's row, and run again if they died.

Every kind of work is one of the resumable actions that commands use, so a job that was killed anywhere is repaired by
running it again; the lock on the tenant keeps two of them apart.
"""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import DatabaseError, connection, connections
from django.db.models import Q
from django.utils.timezone import now
from psycopg import Error as DriverError

from console.jobs.models import DONE, FAILED, RUNNING, SILENT_AFTER, WAITING, Job
from identity_platform.api.errors import ApiError, Conflict, NotFound
from tenants.errors import UpgradeFailed
from tenants.schema import reason_of
from userflow.accounts.models import AdminUser

log = structlog.get_logger("identity.console")

# A job waits for its database most of the time; more at once would take connections and cores from the answers.
AT_ONCE: Final = 2
BEAT_SECONDS: Final = 4.0

Say = Callable[[str], None]
Work = Callable[[Job, Say], None]
_kinds: dict[str, Work] = {}


class JobUnfit(Conflict):
    """409: a job that still runs or has ended well is not run again."""

    message = "This job runs still, or has ended well: there is nothing to run again."


class UnknownJob(NotFound):
    """404: no job has this id."""

    message = "No job has this id."


def kind_of_job(name: str) -> Callable[[Work], Work]:
    """Register the work of a kind of job. It must be safe to run again after it was killed anywhere."""

    def register(work: Work) -> Work:
        _kinds[name] = work
        return work

    return register


def begin_job(*, kind: str, by: AdminUser, tenant_id: UUID | None = None, params: dict[str, Any] | None = None) -> Job:
    """Begin work in the background; gives its row, which tells how far it is. `params` must hold no secret."""
    job = Job.objects.create(kind=kind, tenant_id=tenant_id, params=params or {}, begun_by=by)
    _submit(job.pk)
    return job


def run_job_again(*, job_id: UUID, by: AdminUser) -> Job:
    """Run a job again that failed or whose process is gone. Raises UnknownJob, JobUnfit."""
    gone = Q(state__in=Job.LIVING, seen_at__lt=now() - SILENT_AFTER)
    # One statement: of two who ask at once, one begins it.
    begun = Job.objects.filter(Q(state=FAILED) | gone, pk=job_id).update(
        state=WAITING, reason="", begun_by=by, seen_at=now(), ended_at=None
    )
    job = Job.objects.filter(pk=job_id).first()
    if job is None:
        raise UnknownJob
    if not begun:
        raise JobUnfit
    _submit(job_id)
    return job


# --- in this process -------------------------------------------------------------------------------------------------

_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()
_here: set[UUID] = set()


def _submit(job_id: UUID) -> None:
    global _pool
    with _lock:
        if _pool is None:
            # At the first job and not before: a pool that was made before a fork has no threads after it.
            _pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="console-job")
        if not _here:
            threading.Thread(target=_beat, daemon=True, name="console-jobs-live").start()
        _here.add(job_id)
        # Who asked, from where, travels along into the audit trail.
        _pool.submit(contextvars.copy_context().run, _run, job_id)


def _beat() -> None:
    ended = threading.Event()
    try:
        while True:
            ended.wait(BEAT_SECONDS)
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
        # The row cannot be written: it will look interrupted, which it was.
        log.warning("job_not_ended", job=str(job_id), cause=reason_of(problem))
    finally:
        with _lock:
            _here.discard(job_id)
        connections.close_all()


def _work(job: Job) -> str:
    """Do the work; gives why it failed, or nothing."""
    try:
        _kinds[job.kind](job, lambda line: _say(job.pk, line))
    except ApiError as error:
        return " ".join([error.text, *(problem for each in (error.details or {}).values() for problem in each)])
    except UpgradeFailed as problem:
        return str(problem)
    except (DatabaseError, DriverError) as problem:
        return reason_of(problem)
    except OSError as problem:
        return f"{problem.filename or ''} {problem.strerror or type(problem).__name__}".strip()
    except Exception as problem:
        # A defect of ours: the thread must not end without a word in the row.
        log.exception("job_failed", job=str(job.pk), kind=job.kind)
        return f"It ended unexpectedly ({type(problem).__name__}); the log says more."
    return ""


def _say(job_id: UUID, line: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE console_job SET lines = lines || jsonb_build_array(jsonb_build_array(%s::text, %s::text)), "
            "seen_at = now() WHERE id = %s",
            [now().isoformat(timespec="seconds"), line, job_id],
        )
