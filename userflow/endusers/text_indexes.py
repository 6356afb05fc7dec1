"""Indexes for text inside addresses and names, which the databases of large tenants get (extension `pg_trgm`).

No migration creates them: a server can lack the extension, a small table is read in some milliseconds, and they make imports
into a large tenant slower. They are created beside requests, and left out where a database is restored without the extension
(`tenants.copies.dumps`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.db.models import Count
from psycopg.errors import InsufficientPrivilege

from tenants.copies import databases
from tenants.copies.dumps import EXTENSION, has_extension
from tenants.database_servers.queries import connection_to
from tenants.errors import JobRunning, UnknownTenant
from tenants.failure_reasons import why
from tenants.models import TenantDatabase
from tenants.states import State
from userflow.user_index.models import IndexedEndUser

# The number of users from which on the indexes are created without being asked for. Reading as many takes 10 ms.
LARGE: Final = 50_000
# Names end as `tenants.copies.dumps` expects. Building waits for transactions that are running, and meanwhile changes nothing.
_INDEXES: Final = {
    "end_user_email_trigram": (
        "CREATE INDEX CONCURRENTLY end_user_email_trigram ON userflow_enduser USING gin (email_key gin_trgm_ops)"
    ),
    "end_user_name_trigram": (
        "CREATE INDEX CONCURRENTLY end_user_name_trigram ON userflow_enduser USING gin (lower(name) gin_trgm_ops)"
    ),
}
_LOCK_TIMEOUT: Final = "SET lock_timeout = '60s'"


class Result(StrEnum):
    """What became of a tenant's indexes."""

    CREATED = "created"
    EXIST = "exist"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one tenant. `reason` is for operators and contains no personal data."""

    slug: str
    result: Result
    reason: str = ""


def index_text_search(
    *,
    only: Sequence[str] = (),
    begun: Callable[[int], None] = lambda total: None,
    progress: Callable[[Outcome], None] = lambda outcome: None,
    until: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Create the missing indexes of all large tenants, or of the slugs in `only`, and return what became of each.

    A tenant that fails does not stop the others. Can be killed and repeated at any time. `until` returns whether to stop early.
    Raises UnknownTenant (a slug in `only`).
    """
    todo = _todo(only)
    begun(len(todo))
    outcomes = []
    for mapping in todo:
        if until():
            break
        outcomes.append(_index(mapping))
        progress(outcomes[-1])
    return outcomes


def _todo(only: Sequence[str]) -> list[TenantDatabase]:
    mappings = TenantDatabase.objects.select_related("tenant", "server").filter(status=State.ACTIVE).order_by("pk")
    if not only:
        large = IndexedEndUser.objects.values("tenant_id").annotate(users=Count("*")).filter(users__gte=LARGE)
        return list(mappings.filter(pk__in=[row["tenant_id"] for row in large]))
    chosen = list(mappings.filter(tenant__slug__in=only))
    if missing := set(only) - {mapping.tenant.slug for mapping in chosen}:
        raise UnknownTenant(
            f"No active tenant has this slug: {', '.join(sorted(missing))}. `list_tenants` shows all tenants."
        )
    return chosen


def _index(mapping: TenantDatabase) -> Outcome:
    slug = mapping.tenant.slug
    try:
        # The database cannot be moved meanwhile.
        with databases.job_lock(mapping.server, mapping.pk):
            mapping.refresh_from_db()
            if mapping.status != State.ACTIVE:
                return Outcome(slug, Result.FAILED, "the tenant is not active any more")
            with connection_to(mapping.server, mapping.name) as raw:
                return Outcome(slug, *_index_alone(raw))
    except JobRunning:
        return Outcome(slug, Result.FAILED, "another job is running")
    except InsufficientPrivilege:
        reason = f"the platform may not create the extension: run CREATE EXTENSION {EXTENSION} in {mapping.name}"
        return Outcome(slug, Result.UNAVAILABLE, reason)
    except Exception as problem:
        return Outcome(slug, Result.FAILED, why(problem))


def _index_alone(raw: databases.Raw) -> tuple[Result, str]:
    valid_indexes = raw.execute(
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE i.indrelid = 'userflow_enduser'::regclass AND i.indisvalid"
    ).fetchall()
    missing = [name for name in _INDEXES if (name,) not in valid_indexes]
    if not missing:
        return Result.EXIST, ""
    if not has_extension(raw):
        return Result.UNAVAILABLE, f"the server has no {EXTENSION} (Debian: part of postgresql)"
    raw.execute(f"CREATE EXTENSION IF NOT EXISTS {EXTENSION}")
    raw.execute(_LOCK_TIMEOUT)
    for name in missing:
        # One that was being built when the command was killed is there and not valid.
        raw.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        raw.execute(_INDEXES[name])
    raw.execute("ANALYZE userflow_enduser")
    return Result.CREATED, ""
