"""The schema that this code expects in a tenant database, and upgrades to it."""

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from identity_platform.postgresql.statement_timeout import no_timeout
from tenants.entering.recorded_upgrades import Applied, DatabaseDiffers, Recording, begin_upgrade, is_repeatable
from tenants.entering.target import TENANT_ALIAS, DatabaseTarget, in_target
from tenants.errors import UpgradeFailed
from tenants.failure_reasons import reason_of

_VERSION = re.compile(r"([0-9]+)[-_][0-9a-f]{12}")


def own_apps() -> list[str]:
    """Return the labels of this project's apps: only their migrations run in tenant databases."""
    return sorted(config.label for config in apps.get_app_configs() if config.name in settings.PLATFORM_APPS)


@lru_cache(maxsize=1)
def migration_names() -> frozenset[tuple[str, str]]:
    """Return app and name of every migration of this code. Read from file names: importing migrations is slow."""
    return frozenset(
        (label, path.stem)
        for label in own_apps()
        for path in (Path(apps.get_app_config(label).path) / "migrations").glob("[0-9]*.py")
    )


@lru_cache(maxsize=1)
def schema_version() -> str:
    """Return the version of this code's tenant schema: the number of migrations and a digest of their names."""
    names = sorted(f"{label}.{name}" for label, name in migration_names())
    return f"{len(names)}-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:12]}"


def is_older(version: str) -> bool:
    """Return whether a schema version (or a template's name suffix) is older than this code's.

    During a rolling upgrade the old release must not drop databases of the new one as leftovers.
    """
    match = _VERSION.match(version)
    current = schema_version()
    if match is None or match[0].replace("_", "-") == current:
        return False
    return int(match[1]) <= int(current.partition("-")[0])


def is_current(target: DatabaseTarget) -> bool:
    """Return whether the database has every migration of this code."""
    with in_target(target):
        return migration_names() <= MigrationRecorder(connections[TENANT_ALIAS]).applied_migrations().keys()


def upgrade(target: DatabaseTarget, recordings: dict[Applied, Recording] | None = None) -> list[str]:
    """Migrate the database to this code's schema; return the names of the migrations that ran. `target` must be direct.

    They run in one transaction. `recordings`, shared by the upgrades of one run, spare all but the first of equal databases the
    planning. Raises UpgradeFailed, which names the failed migration, after rolling all back; the driver's error if the
    database cannot be reached.
    """
    with in_target(target), no_timeout():
        connection = connections[TENANT_ALIAS]
        connection.ensure_connection()
        try:
            return _upgrade(connection, {} if recordings is None else recordings)
        except DatabaseDiffers:
            return _upgrade(connection, {})


def _upgrade(connection: BaseDatabaseWrapper, recordings: dict[Applied, Recording]) -> list[str]:
    at = ""

    def begin(migration: str) -> None:
        nonlocal at
        at = migration

    try:
        with transaction.atomic(using=TENANT_ALIAS):
            applied = begin_upgrade(connection)
            recording = recordings.get(applied)
            if recording is None:
                recording = _planned(connection, begin, lambda: at)
                if recording.repeatable:
                    recordings[applied] = recording
            else:
                recording.repeat(connection, begin)
    except DatabaseDiffers:
        raise
    # A data migration can raise any error.
    except Exception as problem:
        raise UpgradeFailed(f"{at}: {reason_of(problem)}" if at else reason_of(problem)) from problem
    return [f"{label}.{name}" for label, name in recording.migrations]


def _planned(connection: BaseDatabaseWrapper, begin: Callable[[str], None], current: Callable[[], str]) -> Recording:
    """Run the migrations that the database lacks, and return what they executed."""

    def note(action: str, migration: Migration | None = None, *_: object) -> None:
        if action == "apply_start" and migration is not None:
            begin(f"{migration.app_label}.{migration.name}")

    app_labels = set(own_apps())
    executor = MigrationExecutor(connection, note)
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] in app_labels]
    plan = executor.migration_plan(targets)
    recording = Recording([(migration.app_label, migration.name) for migration, _ in plan])
    recording.repeatable = bool(plan) and all(is_repeatable(migration) for migration, _ in plan)
    with recording.of(connection, current):
        executor.migrate(targets, plan=plan)
    return recording
