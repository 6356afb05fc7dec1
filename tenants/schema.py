"""Which schema the code expects in a tenant database, and how it gets there."""

import hashlib
from functools import lru_cache
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor

from tenants.context import TENANT_ALIAS, Place, in_place


def own_apps() -> list[str]:
    """Labels of the apps of this tree: only their migrations run in tenant databases."""
    return sorted(
        config.label
        for config in apps.get_app_configs()
        if Path(config.path).resolve().is_relative_to(settings.BASE_DIR) and ".venv" not in Path(config.path).parts
    )


@lru_cache(maxsize=1)
def schema_version() -> str:
    """The version of the tenant schema in this code: how many migrations there are and a digest of their names.

    Read from the file names, not by importing the migrations: a new tenant must not pay for that.
    """
    names = sorted(
        f"{label}.{path.stem}"
        for label in own_apps()
        for path in (Path(apps.get_app_config(label).path) / "migrations").glob("[0-9]*.py")
    )
    return f"{len(names)}-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:12]}"


def upgrade(place: Place) -> list[str]:
    """Bring the database at `place` to this code's schema; gives the names of the migrations that ran.

    All of them run in one transaction, so a failing one leaves the database as it was. `place` must be direct.
    """
    with in_place(place), transaction.atomic(using=TENANT_ALIAS):
        connection = connections[TENANT_ALIAS]
        with connection.cursor() as cursor:
            # A migration may take its time; waiting for locks for ever would stop the tenant.
            cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute("SET LOCAL lock_timeout = '10s'")
        executor = MigrationExecutor(connection)
        own = set(own_apps())
        targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] in own]
        plan = executor.migration_plan(targets)
        executor.migrate(targets, plan=plan)
        return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]
