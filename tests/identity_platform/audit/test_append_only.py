"""The trail is append-only, also for a superuser."""

import pytest
from django.db import ProgrammingError, connection

from tenants.journals import audit_trails
from tests.identity_platform.audit.conftest import fill, run
from tests.world import TestTenant

FORBIDDEN = [
    "UPDATE {events} SET action = 'x'",
    "UPDATE {events} SET action = 'x' WHERE false",
    "DELETE FROM {events}",
    "TRUNCATE {events}",
    "UPDATE {links} SET count = 0",
    "DELETE FROM {links}",
    "TRUNCATE {links} CASCADE",
]


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_tenant_trail_rejects_changes(tenant: TestTenant, statement: str) -> None:
    fill(tenant, 3)
    audit_trails.seal(audit_trails.Owner(tenant.slug, tenant.id), wait=120)
    before = run(tenant, "SELECT count(*), max(id) FROM audit_tenantevent")
    with pytest.raises(ProgrammingError, match="append-only"):
        run(tenant, statement.format(events="audit_tenantevent", links="audit_tenantseal"))
    assert run(tenant, "SELECT count(*), max(id) FROM audit_tenantevent") == before


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_platform_trail_rejects_changes(tenant: TestTenant, statement: str) -> None:
    audit_trails.seal(audit_trails.THE_PLATFORM, wait=120)
    with connection.cursor() as cursor, pytest.raises(ProgrammingError, match="append-only"):
        cursor.execute(statement.format(events="audit_platformevent", links="audit_platformseal"))


def test_replica_session_role_disables_no_trigger(tenant: TestTenant) -> None:
    fill(tenant, 1)
    with pytest.raises(ProgrammingError, match="append-only"):
        run(tenant, "SET LOCAL session_replication_role = replica; DELETE FROM audit_tenantevent")


def test_temporary_table_of_the_same_name_is_ignored(tenant: TestTenant) -> None:
    fill(tenant, 1, days_ago=500)
    with pytest.raises(ProgrammingError, match="append-only"):
        run(
            tenant,
            "CREATE TEMP TABLE audit_tenantseal (kind text, to_id bigint) ON COMMIT DROP;"
            " INSERT INTO audit_tenantseal VALUES ('anchor', 9223372036854775807); DELETE FROM audit_tenantevent",
        )


def test_forged_anchor_does_not_free_young_events(tenant: TestTenant) -> None:
    fill(tenant, 2)
    with pytest.raises(ProgrammingError, match="append-only"):
        run(
            tenant,
            "INSERT INTO audit_tenantseal (number, kind, from_id, to_id, count, newest_at, purged_number, digest,"
            " previous, mac) VALUES (999999, 'anchor', 1, 9223372036854775807, 0, now(), 0, '', '', '');"
            " DELETE FROM audit_tenantevent WHERE action = 'test.filled'",
        )


def test_transaction_number_precedes_the_event_id(tenant: TestTenant) -> None:
    # The other order leaves a gap of microseconds, too short for a race test to hit: see migration 0004.
    default = "SELECT column_default FROM information_schema.columns WHERE column_name = 'id' AND table_name = %s"
    ((own,),) = run(tenant, default, "audit_tenantevent")
    with connection.cursor() as cursor:
        cursor.execute(default, ["audit_platformevent"])
        (platform,) = cursor.fetchone()
    for drawn in (own, platform):
        assert 0 < drawn.index("pg_current_xact_id()") < drawn.index("nextval(")
