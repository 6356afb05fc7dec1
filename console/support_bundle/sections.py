"""The sections of the report. Each reads one part of the installation and says what is wrong there.

A section that needs the global database is left out while that does not respond.
"""

import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import redis
from django.conf import settings
from django.core import checks
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Count, Max, Sum
from django.utils.timezone import now
from django.utils.translation import override

from console.jobs.models import Job
from console.metrics.attention import CHECKS, COUNTED_AT_MOST, Scope, failing_directories
from console.metrics.models import TenantFigures
from console.support_bundle.redaction import redacted_settings
from identity_platform import installation, task_queue
from identity_platform.api import valkey
from tenants.consistency import repairs
from tenants.database_servers import fences, queries
from tenants.database_servers.server_health import server_facts
from tenants.entering.schema import schema_version
from tenants.models import TenantDatabase
from tenants.states import State
from userflow.mail.models import PlatformMail

# Of lists that can be long.
SHOWN: Final = 20


@dataclass(slots=True)
class Section:
    """What was read of one part, what is wrong there, and what an operator may want to know besides."""

    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def versions() -> Section:
    packages = {package.name: package.version for package in distributions()}
    return Section(
        {
            "release": installation.VERSION,
            "installed_as": "package" if installation.IS_PACKAGE else "checkout",
            "embedded_servers": settings.EMBEDDED,
            "schema": schema_version(),
            "python": sys.version,
            "system": platform.platform(),
            "processors": os.cpu_count(),
            "packages": dict(sorted(packages.items(), key=lambda package: package[0].lower())),
        }
    )


def effective_settings() -> Section:
    return Section(redacted_settings())


def system_checks(*, database: bool) -> Section:
    """Run `check --database default`, outside embedded mode also `check --deploy`."""
    messages = checks.run_checks(
        include_deployment_checks=not settings.EMBEDDED, databases=["default"] if database else None
    )
    section = Section({"messages": []})
    for message in messages:
        if message.is_silenced():
            continue
        text = f"{message.id}: {message.msg}"
        section.facts["messages"].append({"id": message.id, "message": message.msg, "hint": message.hint})
        (section.problems if message.level >= checks.ERROR else section.notes).append(text)
    return section


def global_database() -> Section:
    began = perf_counter()
    use = queries.global_database_use()
    milliseconds = round((perf_counter() - began) * 1000, 1)
    executor = MigrationExecutor(connection)
    pending = [str(migration) for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    fenced = [] if pending else list(fences.reasons())
    section = Section(use._asdict())
    section.facts |= {"milliseconds": milliseconds, "pending_migrations": pending, "fenced": fenced}
    if pending:
        section.problems.append(f"Migrations are pending ({len(pending)}). Run `{installation.MANAGE} prepare`.")
    section.problems += fenced
    return section


def cache() -> Section:
    began = perf_counter()
    try:
        server: dict[str, Any] = valkey.client().info()
        keys = valkey.client().dbsize()
    except (redis.RedisError, OSError) as problem:
        return Section(problems=[f"The cache does not respond ({type(problem).__name__})."])
    milliseconds = round((perf_counter() - began) * 1000, 1)
    names = ("used_memory", "maxmemory", "maxmemory_policy", "evicted_keys", "connected_clients", "uptime_in_seconds")
    facts = {name: server.get(name) for name in ("server_name", "valkey_version", "redis_version", "role", *names)}
    return Section(facts | {"keys": keys, "milliseconds": milliseconds})


def database_servers() -> Section:
    """Connect to each server, as `tenant_worker` does once a minute. Nothing is stored."""
    section = Section({"servers": []})
    for facts in server_facts():
        section.facts["servers"].append(asdict(facts))
        if facts.failure:
            section.problems.append(f"{facts.name}: {facts.failure}")
    return section


def tenants() -> Section:
    """Run check_tenants, which opens every tenant's database."""
    findings = repairs.find_problems()
    lines = [f"{each.kind}: {each.subject} on {each.server}: {each.message}" for each in findings]
    section = Section({"findings": lines}, problems=lines[:SHOWN])
    if len(lines) > SHOWN:
        section.problems.append(f"{len(lines) - SHOWN} more. `{installation.MANAGE} check_tenants` lists them.")
    return section


def sizes() -> Section:
    states = TenantDatabase.objects.values_list("status").annotate(Count("pk")).order_by("status")
    sums = TenantFigures.objects.aggregate(
        users=Sum("users"), database_bytes=Sum("database_bytes"), collected_at=Max("collected_at")
    )
    largest = TenantFigures.objects.order_by("-database_bytes").values("tenant__slug", "database_bytes", "users")
    folders = {"IDENTITY_VAR": settings.VAR, "BACKUP_FOLDER": settings.BACKUP_FOLDER}
    return Section(
        {
            "tenants": dict(states),
            "sums": sums,
            "largest_tenants": list(largest[:SHOWN]),
            "free_bytes": {name: _free_bytes(folder) for name, folder in folders.items()},
        }
    )


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def tasks() -> Section:
    backlogs = task_queue.backlogs()
    workers = task_queue.living_workers().count()
    waiting = sum(backlog.waiting for backlog in backlogs)
    section = Section({"queues": [asdict(backlog) for backlog in backlogs], "workers": workers})
    if waiting and not workers:
        section.problems.append(
            f"{waiting} task{' waits' if waiting == 1 else 's wait'} and no tenant_worker runs. Start one."
        )
    elif not workers:
        section.notes.append("No tenant_worker runs.")
    return section


def attention() -> Section:
    """Count what the console's dashboard shows under “Needs attention”."""
    scope = Scope(None)
    with override("en"):
        counts = {str(check.title): check.count(scope) for check in CHECKS.values()}
    notes = [f"{title}: {count}{'+' * (count == COUNTED_AT_MOST)}" for title, count in counts.items() if count]
    return Section({"counts": counts}, notes=notes)


def last_failures() -> Section:
    """Read the last failures that the platform has stored: their names, times and reasons, which contain no personal data.

    The content of a mail, its recipient, and the arguments of a job or task are left out.
    """
    jobs = Job.objects.filter(Job.unsuccessful(now())).order_by("-created_at")
    dead_mails = PlatformMail.objects.filter(status=PlatformMail.DEAD).order_by("-settled_at")
    databases = TenantDatabase.objects.filter(status=State.FAILED).order_by("-updated_at")
    unread = TenantFigures.objects.exclude(failure="").order_by("-checked_at")
    undelivered = TenantFigures.objects.filter(needs_attention=True).order_by("-failing_endpoints", "-dead_mails")
    counted = ("failing_endpoints", "overdue_endpoints", "pending_messages", "dead_mails", "overdue_mails")
    directories = failing_directories().order_by("-failing_since")
    return Section(
        {
            "jobs": list(jobs.values("id", "kind", "tenant_id", "state", "reason", "created_at", "ended_at")[:SHOWN]),
            "tasks": [asdict(failure) for failure in task_queue.last_failures(SHOWN)],
            "tenants": list(databases.values("tenant__slug", "reason", "updated_at")[:SHOWN]),
            "metrics": list(unread.values("tenant__slug", "failure", "checked_at")[:SHOWN]),
            "mails of the platform": list(
                dead_mails.values("template", "attempts", "refusals", "last_error", "settled_at")[:SHOWN]
            ),
            # As of the last collection: what failed is in the tenants' databases.
            "mails and webhooks of tenants": list(undelivered.values("tenant__slug", *counted, "collected_at")[:SHOWN]),
            "directories": list(directories.values("id", "kind", "tenant_id", "failing_since")[:SHOWN]),
        }
    )


# Those that need nothing but this machine and the cache, and those that read the global database.
LOCAL: Final[dict[str, Callable[[], Section]]] = {
    "versions": versions,
    "settings": effective_settings,
    "cache": cache,
}
OF_DATABASE: Final[dict[str, Callable[[], Section]]] = {
    "database servers": database_servers,
    "tenants": tenants,
    "sizes": sizes,
    "tasks": tasks,
    "attention": attention,
    "last failures": last_failures,
}
