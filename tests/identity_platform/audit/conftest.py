"""Audit trails with many events, and the access of a database owner."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

from tenants.entering.context import in_tenant
from tenants.journals import audit_trails
from tests.world import TestTenant


def run(tenant: TestTenant, statement: str, *values: Any) -> list[Any]:
    """Run a statement in the tenant's database with the platform's own role."""
    with in_tenant(tenant.id), connections["tenant"].cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description else []


@contextmanager
def as_owner(tenant: TestTenant, *tables: str) -> Iterator[Callable[..., list[Any]]]:
    """Disable the triggers, which only the owner of the tables can do."""
    for table in tables or ("audit_tenantevent", "audit_tenantseal"):
        run(tenant, f"ALTER TABLE {table} DISABLE TRIGGER USER")
    try:
        yield lambda statement, *values: run(tenant, statement, *values)
    finally:
        for table in tables or ("audit_tenantevent", "audit_tenantseal"):
            run(tenant, f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")
            run(tenant, f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER kept")


def fill(tenant: TestTenant, events: int, *, days_ago: int = 0, action: str = "test.filled") -> None:
    """Insert that many different events in one statement."""
    run(
        tenant,
        "INSERT INTO audit_tenantevent (at, action, outcome, actor_kind, actor_id, target_kind, target_id, address,"
        " request_id, details) SELECT now() - make_interval(days => %s), %s, 'success', 'system', '', 'row',"
        " n::text, '', '', jsonb_build_object('n', n) FROM generate_series(1, %s) AS n",
        days_ago,
        action,
        events,
    )


def seal(tenant: TestTenant) -> int:
    """Seal all events and return their number. Wait for transactions of other tests on the same server."""
    sealed = audit_trails.seal(audit_trails.Owner(tenant.slug, tenant.id), wait=120)
    assert not sealed.held_back
    return sealed.events
