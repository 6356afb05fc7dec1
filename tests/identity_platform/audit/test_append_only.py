"""What is in the trail stays in the trail, for the application and for a superuser alike."""

import pytest
from django.db import ProgrammingError, connection

from tenants import audit_trails
from tests.identity_platform.audit.conftest import fill, run
from tests.world import House

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
def test_a_tenants_trail_takes_no_change(house: House, statement: str) -> None:
    fill(house, 3)
    audit_trails.seal(audit_trails.Owner(house.made.tenant.slug, house.id))
    before = run(house, "SELECT count(*), max(id) FROM audit_tenantevent")
    with pytest.raises(ProgrammingError, match="append-only"):
        run(house, statement.format(events="audit_tenantevent", links="audit_tenantseal"))
    assert run(house, "SELECT count(*), max(id) FROM audit_tenantevent") == before


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_the_platforms_trail_takes_no_change(house: House, statement: str) -> None:
    audit_trails.seal(audit_trails.THE_PLATFORM)
    with connection.cursor() as cursor, pytest.raises(ProgrammingError, match="append-only"):
        cursor.execute(statement.format(events="audit_platformevent", links="audit_platformseal"))


def test_a_replicas_session_role_switches_nothing_off(house: House) -> None:
    fill(house, 1)
    with pytest.raises(ProgrammingError, match="append-only"):
        run(house, "SET LOCAL session_replication_role = replica; DELETE FROM audit_tenantevent")


def test_a_temporary_table_of_the_same_name_opens_no_door(house: House) -> None:
    fill(house, 1, days_ago=500)
    with pytest.raises(ProgrammingError, match="append-only"):
        run(
            house,
            "CREATE TEMP TABLE audit_tenantseal (kind text, to_id bigint) ON COMMIT DROP;"
            " INSERT INTO audit_tenantseal VALUES ('anchor', 9223372036854775807); DELETE FROM audit_tenantevent",
        )


def test_an_anchor_of_somebody_elses_lets_young_events_go_no_more_than_none(house: House) -> None:
    fill(house, 2)
    with pytest.raises(ProgrammingError, match="append-only"):
        run(
            house,
            "INSERT INTO audit_tenantseal (number, kind, from_id, to_id, count, newest_at, purged_number, digest,"
            " previous, mac) VALUES (999999, 'anchor', 1, 9223372036854775807, 0, now(), 0, '', '', '');"
            " DELETE FROM audit_tenantevent WHERE action = 'test.filled'",
        )


def test_a_transaction_has_its_number_before_an_event_has_its_id(house: House) -> None:
    # Drawn in the other order a window of microseconds opens that no test of races would meet: see migration 0004.
    default = "SELECT column_default FROM information_schema.columns WHERE column_name = 'id' AND table_name = %s"
    ((own,),) = run(house, default, "audit_tenantevent")
    with connection.cursor() as cursor:
        cursor.execute(default, ["audit_platformevent"])
        (platform,) = cursor.fetchone()
    for drawn in (own, platform):
        assert 0 < drawn.index("pg_current_xact_id()") < drawn.index("nextval(")
