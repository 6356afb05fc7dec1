"""Which schema the code expects in a tenant database, and how it gets there."""

import hashlib
import re
import traceback
from functools import lru_cache
from pathlib import Path

import psycopg
import structlog
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor

from identity_platform.api.errors import ApiError
from identity_platform.postgresql.statement_timeout import no_timeout
from tenants.errors import UpgradeFailed
from tenants.target import TENANT_ALIAS, DatabaseTarget, in_target

log = structlog.get_logger("identity.tenants")

_VERSION = re.compile(r"([0-9]+)[-_][0-9a-f]{12}")
# SQLSTATE classes whose messages name objects of ours (unknown table, lock not available, connection lost, cancelled),
# never a value of a row. The others (22 data exception, 23 integrity) quote values.
_MESSAGE_IS_HARMLESS = ("08", "42", "53", "55", "57")


def own_apps() -> list[str]:
    """Labels of the apps of this tree: only their migrations run in tenant databases."""
    return sorted(
        config.label
        for config in apps.get_app_configs()
        if Path(config.path).resolve().is_relative_to(settings.BASE_DIR) and ".venv" not in Path(config.path).parts
    )


@lru_cache(maxsize=1)
def migration_names() -> frozenset[tuple[str, str]]:
    """App and name of every migration that a tenant database of this code has seen.

    Read from the file names, not by importing the migrations: a new tenant must not pay for that.
    """
    return frozenset(
        (label, path.stem)
        for label in own_apps()
        for path in (Path(apps.get_app_config(label).path) / "migrations").glob("[0-9]*.py")
    )


@lru_cache(maxsize=1)
def schema_version() -> str:
    """The version of the tenant schema in this code: how many migrations there are and a digest of their names."""
    names = sorted(f"{label}.{name}" for label, name in migration_names())
    return f"{len(names)}-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:12]}"


def is_older(version: str) -> bool:
    """Whether the version (or the end of a template's name) is one that this code has left behind.

    While a new release is rolled out, the old one must not take the new one's databases for remains.
    """
    found = _VERSION.match(version)
    own = schema_version()
    if found is None or found[0].replace("_", "-") == own:
        return False
    return int(found[1]) <= int(own.partition("-")[0])


def is_current(target: DatabaseTarget) -> bool:
    """Whether the database at `target` can be read and has every migration of this code: one statement."""
    with in_target(target), connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute("SELECT app, name FROM django_migrations")
        return migration_names() <= set(cursor.fetchall())


def upgrade(target: DatabaseTarget) -> list[str]:
    """Bring the database at `target` to this code's schema; gives the names of the migrations that ran.

    All of them run in one transaction, so a failing one leaves the database as it was: UpgradeFailed names it. `target`
    must be direct. A database that cannot be reached raises the driver's error.
    """
    own = set(own_apps())
    at = ""

    def note(action: str, migration: Migration | None = None, fake: bool | None = None, /) -> None:
        nonlocal at
        if action == "apply_start" and migration is not None:
            at = f"{migration.app_label}.{migration.name}"

    with in_target(target), no_timeout():
        connection = connections[TENANT_ALIAS]
        connection.ensure_connection()
        try:
            with transaction.atomic(using=TENANT_ALIAS):
                with connection.cursor() as cursor:
                    # A migration may take its time; waiting for locks for ever would stop the tenant.
                    cursor.execute("SET LOCAL statement_timeout = 0")
                    cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                    cursor.execute("SET LOCAL lock_timeout = '10s'")
                    # A table with deferred checks pending cannot be altered by the next migration of the same
                    # transaction.
                    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                executor = MigrationExecutor(connection, note)
                targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] in own]
                plan = executor.migration_plan(targets)
                executor.migrate(targets, plan=plan)
        # Data migrations may fail with anything.
        except Exception as problem:
            raise UpgradeFailed(f"{at}: {reason_of(problem)}" if at else reason_of(problem)) from problem
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def why(problem: Exception) -> str:
    """Why an item of a loop failed, for operators. Log what is neither an error of ours nor the database's: a defect."""
    if isinstance(problem, ApiError):
        return problem.text
    if isinstance(problem, UpgradeFailed):
        return str(problem)
    if not isinstance(problem, DatabaseError | psycopg.Error):
        at = traceback.extract_tb(problem.__traceback__)[-1:]
        trace = [f"{Path(frame.filename).stem}:{frame.name}:{frame.lineno}" for frame in at]
        log.error("unexpected_error", kind=type(problem).__qualname__, trace=trace)
    return reason_of(problem)


def reason_of(problem: BaseException) -> str:
    """What went wrong, for operators: without values of rows, which database messages can quote."""
    cause = problem.__cause__ if isinstance(problem, DatabaseError) else problem
    if not isinstance(cause, psycopg.Error):
        return type(problem).__name__
    if cause.sqlstate is None and isinstance(cause, psycopg.OperationalError):
        # The driver's words for it name hosts, users and paths.
        return "the database does not answer"
    diagnosis = cause.diag
    words = [type(cause).__name__]
    words += [part for part in (diagnosis.table_name, diagnosis.column_name, diagnosis.constraint_name) if part]
    if cause.sqlstate and cause.sqlstate.startswith(_MESSAGE_IS_HARMLESS) and diagnosis.message_primary:
        words = [f"{words[0]}: {diagnosis.message_primary}"]
    return " ".join(words)
