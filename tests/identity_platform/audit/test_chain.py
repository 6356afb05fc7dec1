"""The hash chain: what it covers and detects, and what it waits for."""

import io
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from identity_platform.audit import chain
from identity_platform.audit.writer import record_for_tenant
from tenants import keys
from tenants.copies import databases
from tenants.database_servers import servers
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.journals import audit_trails
from tenants.models import DataKey
from tests.copies import change_mapping
from tests.identity_platform.audit.conftest import as_owner, fill, run, seal
from tests.world import TestTenant

MANY = 100_000


@pytest.fixture(scope="module")
def long_trail(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A tenant with a sealed trail of 100,000 events."""
    from tests.world import build_tenant

    with django_db_blocker.unblock():
        tenant = build_tenant("archive")
        for _ in range(5):
            fill(tenant, MANY // 5)
        assert seal(tenant) >= MANY
        return tenant


def owner(tenant: TestTenant) -> audit_trails.Owner:
    return audit_trails.Owner(tenant.slug, tenant.id)


def faults(tenant: TestTenant) -> list[str]:
    return audit_trails.verify(owner(tenant)).faults


def verify_command(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("verify_audit", *arguments, stdout=out, stderr=err)
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def test_verify_accepts_an_unchanged_trail(long_trail: TestTenant) -> None:
    code, said, complained = verify_command(long_trail.slug)
    assert (code, complained, "no faults" in said) == (0, "", True)
    assert int(re.findall(r"(\d+) events in", said)[0]) >= MANY


@pytest.mark.parametrize(
    ("tamper", "restore", "told"),
    [
        (
            "UPDATE audit_tenantevent SET actor_id = 'x' WHERE id = 50000",
            "UPDATE audit_tenantevent SET actor_id = '' WHERE id = 50000",
            "changed or exchanged",
        ),
        (
            "UPDATE audit_tenantevent SET details = details || '{\"n\": 0}' WHERE id = 77777",
            "UPDATE audit_tenantevent SET details = jsonb_build_object('n', target_id::bigint) WHERE id = 77777",
            "changed or exchanged",
        ),
        (
            "UPDATE audit_tenantevent SET at = at + interval '1 microsecond' WHERE id = 99999",
            "UPDATE audit_tenantevent SET at = at - interval '1 microsecond' WHERE id = 99999",
            "changed or exchanged",
        ),
        (
            "UPDATE audit_tenantevent SET id = -id WHERE id = 12345",
            "UPDATE audit_tenantevent SET id = -id WHERE id = -12345",
            "1 removed",
        ),
    ],
)
def test_verify_finds_one_change_among_100_000_events(
    long_trail: TestTenant, tamper: str, restore: str, told: str
) -> None:
    with as_owner(long_trail) as sql:
        sql(tamper)
    code, _, complained = verify_command(str(long_trail.id))
    with as_owner(long_trail) as sql:
        sql(restore)
    # An event that was moved below the chain is a fault of its own.
    number = 2 if "id = -id" in tamper else 1
    assert (code, complained.count("\n"), told in complained) == (1, number, True)
    assert faults(long_trail) == []


def test_verify_finds_an_exchanged_pair(long_trail: TestTenant) -> None:
    def exchange(one: int, other: int) -> None:
        with as_owner(long_trail) as sql:
            for source, target in ((one, -1), (other, one), (-1, other)):
                sql("UPDATE audit_tenantevent SET id = %s WHERE id = %s", target, source)

    exchange(60_010, 60_011)
    found = faults(long_trail)
    exchange(60_010, 60_011)
    assert [fault.partition(": ")[2] for fault in found] == ["at least one was changed or exchanged"]
    assert faults(long_trail) == []


def test_verify_finds_a_pair_exchanged_across_links(long_trail: TestTenant) -> None:
    ids = [150, 90_050]

    def exchange() -> None:
        with as_owner(long_trail) as sql:
            for source, target in ((ids[0], -1), (ids[1], ids[0]), (-1, ids[1])):
                sql("UPDATE audit_tenantevent SET id = %s WHERE id = %s", target, source)

    exchange()
    assert len(faults(long_trail)) == 2
    exchange()
    assert faults(long_trail) == []


def test_verify_finds_removed_added_and_forged_events(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    fill(tenant, 3000)
    seal(tenant)
    with as_owner(tenant) as sql:
        sql("DELETE FROM audit_tenantevent WHERE id = 1500")
    assert faults(tenant) == ["events 1001 to 2000 (link 2): 1 removed"]
    with as_owner(tenant) as sql:
        sql(
            "INSERT INTO audit_tenantevent (id, at, action, outcome, actor_kind, actor_id, target_kind, target_id,"
            " address, request_id, details) SELECT 1500, at, action, outcome, actor_kind, actor_id, target_kind,"
            " target_id, address, request_id, details FROM audit_tenantevent WHERE id = 1501"
        )
    assert faults(tenant) == ["events 1001 to 2000 (link 2): at least one was changed or exchanged"]


INSERT_COPY = (
    "INSERT INTO audit_tenantevent (id, at, action, outcome, actor_kind, actor_id, target_kind, target_id, address,"
    " request_id, details) SELECT %s, at, action, outcome, actor_kind, actor_id, target_kind, target_id, address,"
    " request_id, details FROM audit_tenantevent ORDER BY id DESC LIMIT 1"
)


@pytest.mark.parametrize("event_id", [-7, 0])
def test_verify_finds_events_below_the_chain(new_tenant: Callable[[], TestTenant], event_id: int) -> None:
    tenant = new_tenant()
    fill(tenant, 10)
    seal(tenant)
    with as_owner(tenant) as sql:
        sql(INSERT_COPY, event_id)
    assert faults(tenant) == ["1 events below event 1, where the chain begins: no link covers them"]


def test_verify_finds_hashes_recomputed_without_the_key(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    fill(tenant, 2500)
    seal(tenant)
    with as_owner(tenant) as sql:
        sql("UPDATE audit_tenantseal SET digest = sha256('x') WHERE number = 2")
    assert any("not made by this platform" in fault for fault in faults(tenant))


def test_verify_finds_a_removed_link_and_a_cut_end(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, cut = new_tenant(), new_tenant()
    for one in (tenant, cut):
        fill(one, 3500)
        seal(one)
        assert faults(one) == []
    with as_owner(tenant) as sql:
        sql("DELETE FROM audit_tenantseal WHERE number = 2")
    assert any("links 2 to 2 are missing" in fault for fault in faults(tenant))
    with as_owner(cut) as sql:
        # Remove the newest link with its events: the remaining chain is consistent by itself.
        sql("DELETE FROM audit_tenantevent WHERE id > 3000")
        ((last,),) = sql("SELECT max(number) FROM audit_tenantseal")
        sql("DELETE FROM audit_tenantseal WHERE to_id > 3000")
    assert faults(cut) == [f"links {last} to {last} are missing: the chain's end was cut off"]
    # After a restore from a backup the operator accepts the end.
    assert verify_command(str(cut.id), "--accept-end")[0] == 0


def test_late_sealer_does_not_hide_a_cut_end(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    for _ in range(2):
        fill(tenant, 10)
        seal(tenant)
    # A sealer was delayed between its commit and the head; another one has sealed more since.
    with audit_trails.opened(owner(tenant)) as trail:
        *_, older, newest = chain.links_from(trail, 1)
        chain.keep_head(trail, older)
        assert chain.head_of(trail) == (newest.number, newest.mac)
    with as_owner(tenant) as sql:
        sql("DELETE FROM audit_tenantevent WHERE id >= %s", newest.from_id)
        sql("DELETE FROM audit_tenantseal WHERE number = %s", newest.number)
    assert any("the chain's end was cut off" in fault for fault in faults(tenant))


def test_verify_finds_the_link_of_another_tenant(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, other = new_tenant(), new_tenant()
    for one in (tenant, other):
        seal(one)
        fill(one, 10)
        seal(one)
    ((mac,),) = run(other, "SELECT mac FROM audit_tenantseal WHERE number = 1")
    with as_owner(tenant) as sql:
        sql("UPDATE audit_tenantseal SET mac = %s WHERE number = 1", bytes(mac))
    assert any("link 1 was changed" in fault for fault in faults(tenant))


def test_seal_waits_for_an_event_that_commits_late(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    seal(tenant)
    written, may_end = threading.Event(), threading.Event()

    def slow_writer() -> None:
        with in_tenant(tenant.id), tenant_atomic():
            record_for_tenant("test.slow")
            written.set()
            may_end.wait(30)
        connections.close_all()

    writer = threading.Thread(target=slow_writer)
    writer.start()
    assert written.wait(30)
    # It has a higher id and is committed first.
    with in_tenant(tenant.id):
        record_for_tenant("test.quick")
    held_back = audit_trails.seal(owner(tenant), wait=0.2)
    may_end.set()
    writer.join()
    assert (held_back.events, held_back.held_back) == (0, True)
    assert seal(tenant) == 2
    assert faults(tenant) == []


def test_concurrent_writers_and_sealers_leave_one_chain(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()

    def write() -> None:
        with in_tenant(tenant.id):
            for _ in range(150):
                with tenant_atomic():
                    record_for_tenant("test.written")
        connections.close_all()

    def keep_sealing() -> None:
        for _ in range(15):
            audit_trails.seal(owner(tenant))
        connections.close_all()

    threads = [threading.Thread(target=work) for work in (write, write, write, keep_sealing, keep_sealing)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seal(tenant)
    verdict = audit_trails.verify(owner(tenant))
    assert (verdict.faults, verdict.unsealed) == ([], 0)
    assert verdict.events >= 450


def test_platform_trail_is_sealed_and_verified(tenant: TestTenant) -> None:
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("seal_audit", "platform", stdout=out)
    assert (ended.value.code, "1 trail," in out.getvalue()) == (0, True)
    assert verify_command("platform")[0] == 0


def test_verify_command_rejects_an_unknown_trail(tenant: TestTenant) -> None:
    from django.core.management.base import CommandError

    with pytest.raises(CommandError, match="no-such-tenant") as raised:
        call_command("verify_audit", "no-such-tenant")
    assert raised.value.returncode == 2


def test_seal_command_skips_a_broken_trail(new_tenant: Callable[[], TestTenant]) -> None:
    sound, broken = new_tenant(), new_tenant()
    for tenant in (sound, broken):
        fill(tenant, 5)
    run(broken, "ALTER TABLE audit_tenantseal RENAME TO hidden")
    _, problems = audit_trails.seal_all(wait=120)
    run(broken, "ALTER TABLE hidden RENAME TO audit_tenantseal")
    named = {problem.partition(":")[0] for problem in problems}
    assert named & {tenant.slug for tenant in (sound, broken)} == {broken.slug}
    assert audit_trails.verify(owner(sound)).unsealed == 0
    assert audit_trails.seal_all(until=lambda: True) == (0, [])


def test_verify_reports_unreachable_apart_from_broken(new_tenant: Callable[[], TestTenant]) -> None:
    gone, tampered = new_tenant(), new_tenant()
    fill(tampered, 5)
    seal(tampered)
    with servers.maintenance(gone.row.database.server) as raw:
        databases.drop(raw, gone.row.database.name)
    code, said, complained = verify_command(gone.slug)
    assert (code, "0 trails broken, 1 not read." in said) == (3, True)
    assert complained == f"{gone.slug}: not read, the database does not answer\n"
    change_mapping(gone.id, status="failed")
    assert verify_command(gone.slug)[0] == 3
    with as_owner(tampered) as sql:
        sql("UPDATE audit_tenantevent SET actor_id = 'x'")
    code, said, _ = verify_command(gone.slug, tampered.slug)
    assert (code, "1 trail broken, 1 not read." in said) == (1, True)


def test_missing_data_key_stops_no_other_trail(new_tenant: Callable[[], TestTenant]) -> None:
    sound, broken = new_tenant(), new_tenant()
    for tenant in (sound, broken):
        fill(tenant, 5)
    DataKey.objects.filter(owner=str(broken.id)).delete()
    keys.forget(str(broken.id))
    _, problems = audit_trails.seal_all(wait=120)
    assert f"{broken.slug}: its data key is missing or cannot be decrypted" in problems
    assert audit_trails.verify(owner(sound)).unsealed == 0
    assert verify_command(broken.slug)[0] == 3
