"""Start jobs, which run in worker processes (`tenant_worker`), and record their progress in the job's row.

Every kind of job is a resumable action that a command uses too. If a worker is killed, another one continues its jobs. The
lock on the tenant keeps a job and a command from running on it at once.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog
from django.db import DatabaseError, transaction
from django.utils import translation
from django.utils.timezone import now
from psycopg import Error as DriverError

from console.frame.access import Context
from console.jobs.models import DONE, FAILED, INTERRUPTED, RUNNING, WAITING, Job
from identity_platform import task_queue
from identity_platform.api.errors import ApiError, Conflict, NotFound
from identity_platform.audit.origin import Origin, current_origin, set_origin
from identity_platform.postgresql.row_errors import first_or
from tenants.backend.pool import opening_at_once
from tenants.errors import UpgradeFailed
from tenants.failure_reasons import reason_of
from userflow.accounts.models import AdminUser

log = structlog.get_logger("identity.console")

QUEUE: Final = "console"
_TASK: Final = "run_console_job"

Report = Callable[[str], None]
Work = Callable[[Job, Report], None]
_kinds: dict[str, Work] = {}


class JobNotRepeatable(Conflict):
    """409: the job is still running or has succeeded."""

    code = "job_not_repeatable"
    message = "This job is still running or has succeeded, so it cannot be run again."


class UnknownJob(NotFound):
    """404: no job has this id."""

    code = "job_not_found"
    message = "No job has this id."


def kind_of_job(name: str) -> Callable[[Work], Work]:
    """Register the function of a kind of job. It must be safe to run again after being killed at any point."""

    def register(work: Work) -> Work:
        _kinds[name] = work
        return work

    return register


def begin_job(*, kind: str, by: AdminUser, tenant_id: UUID | None = None, params: Context | None = None) -> Job:
    """Queue a job and return its row, which shows its progress. `params` must hold no secret."""
    with transaction.atomic():
        job = Job.objects.create(kind=kind, tenant_id=tenant_id, params=params or {}, begun_by=by)
        task_queue.start(_TASK, lock=job.lock, **_arguments(job))
    return job


def run_job_again(*, job_id: UUID, by: AdminUser) -> Job:
    """Run a failed or interrupted job again. Raises UnknownJob, JobNotRepeatable."""
    with transaction.atomic():
        job = first_or(Job.objects.select_for_update().filter(pk=job_id), UnknownJob)
        if job.read_status() not in (FAILED, INTERRUPTED):
            raise JobNotRepeatable
        job.state, job.reason, job.begun_by, job.seen_at, job.ended_at = WAITING, "", by, now(), None
        job.save(update_fields=["state", "reason", "begun_by", "seen_at", "ended_at"])
        task_queue.start_again(_TASK, lock=job.lock, **_arguments(job))
    return job


def _arguments(job: Job) -> dict[str, str]:
    """Return the arguments of the task: the job, and who started it from where, for the audit log."""
    return {
        "job_id": str(job.pk),
        "language": translation.get_language(),
        **current_origin().audit_columns(),
    }


@task_queue.task(_TASK, queue=QUEUE)
def run_job(job_id: str, language: str, actor_kind: str, actor_id: str, address: str, request_id: str) -> None:
    """Run a job, or continue it after its worker has ended. The queue runs it in one worker at a time."""
    set_origin(Origin(actor_kind, actor_id, address, request_id))
    try:
        if not Job.objects.filter(pk=job_id, state__in=Job.LIVING).update(state=RUNNING, seen_at=now()):
            return
        job = Job.objects.get(pk=job_id)
        with translation.override(language), opening_at_once():
            reason = _work(job)
        Job.objects.filter(pk=job_id).update(state=FAILED if reason else DONE, reason=reason, ended_at=now())
    except (DatabaseError, DriverError) as problem:
        # The row cannot be written, so the job will be shown as interrupted.
        log.warning("job_not_ended", job=job_id, cause=reason_of(problem))


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
