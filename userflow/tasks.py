"""Periodic tasks of users' data."""

import io

import structlog
from django.core.management import call_command

from identity_platform.task_queue import TaskContext, periodic_task
from tenants.schema import why

log = structlog.get_logger("identity.directory")


@periodic_task("synchronize_directories")
def synchronize_directories(context: TaskContext) -> None:
    """Synchronize all directories that are due. Their pages show the runs."""
    try:
        call_command("sync_directory", all_due=True, stdout=io.StringIO())
    except SystemExit as ended:
        if ended.code:
            log.warning("directories_not_synchronized", cause="some failed: their pages show the reason")
    except Exception as problem:
        log.warning("directories_not_synchronized", cause=why(problem))
