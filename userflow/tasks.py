"""Periodic tasks of users' data."""

import io

import structlog
from django.core.management import call_command

from identity_platform.api.errors import ApiError
from identity_platform.task_queue import PROBLEMS, TaskContext, periodic_task
from tenants.addresses.domain_claims import tenants_with_domains
from tenants.failure_reasons import why
from userflow.domains.actions import check_domains
from userflow.endusers.text_indexes import Result, index_text_search
from userflow.user_index.actions import index_end_users

log = structlog.get_logger("identity.directory")


@periodic_task("synchronize_directories")
def synchronize_directories(context: TaskContext) -> None:
    """Synchronize all directories that are due. Their pages show the runs."""
    try:
        call_command("sync_directory", all_due=True, stdout=io.StringIO())
    except SystemExit as ended:
        if ended.code:
            PROBLEMS.labels("synchronize_directories").inc()
            log.warning("directories_not_synchronized", cause="some failed: their pages show the reason")
    except Exception as problem:
        PROBLEMS.labels("synchronize_directories").inc()
        log.warning("directories_not_synchronized", cause=why(problem))


@periodic_task("check_domains")
def check_domains_of_tenants(context: TaskContext) -> None:
    """Look up the TXT records of all verified domains."""
    for tenant_id in tenants_with_domains():
        if context.should_abort():
            return
        try:
            check_domains(tenant_id=tenant_id)
        except ApiError:
            # Deleted meanwhile or under maintenance: the next run records what has become of its domains.
            continue
        except Exception as problem:
            PROBLEMS.labels("check_domains").inc()
            log.warning("domains_not_checked", tenant=str(tenant_id), cause=why(problem))


@periodic_task("index_text_search")
def index_large_tenants(context: TaskContext) -> None:
    """Create the indexes for text search of tenants that have become large."""
    try:
        outcomes = index_text_search(until=context.should_abort)
    except Exception as problem:
        PROBLEMS.labels("index_text_search").inc()
        log.warning("text_search_not_indexed", cause=why(problem))
        return
    if unavailable := [outcome for outcome in outcomes if outcome.result is Result.UNAVAILABLE]:
        # Their lists are slower, which is no failure of this run.
        log.info(
            "text_search_not_indexed", tenants=len(unavailable), first=f"{unavailable[0].slug}: {unavailable[0].reason}"
        )
    if failed := [outcome for outcome in outcomes if outcome.result is Result.FAILED]:
        PROBLEMS.labels("index_text_search").inc()
        log.warning("text_search_not_indexed", tenants=len(failed), first=f"{failed[0].slug}: {failed[0].reason}")


@periodic_task("index_end_users")
def compare_index(context: TaskContext) -> None:
    """Compare the index of end users with the databases of all tenants, and correct it."""
    try:
        outcomes = index_end_users(until=context.should_abort)
    except Exception as problem:
        PROBLEMS.labels("index_end_users").inc()
        log.warning("end_users_not_indexed", cause=why(problem))
        return
    if corrected := sum(outcome.difference.total for outcome in outcomes):
        log.info("index_of_end_users_corrected", entries=corrected)
    if failed := [outcome for outcome in outcomes if outcome.failure]:
        PROBLEMS.labels("index_end_users").inc()
        log.warning("end_users_not_indexed", tenants=len(failed), first=f"{failed[0].slug}: {failed[0].failure}")
