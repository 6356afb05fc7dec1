"""Move tenants online between two PostgreSQL servers, also with killed jobs and unreachable servers."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.core.management import CommandError
from django.db import connections
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tenants.consistency import repairs
from tenants.database_servers import fences, replication, servers
from tenants.database_servers.queries import connection_to
from tenants.entering.context import in_tenant
from tenants.jobs import moves
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, WarmDatabase
from tenants.states import Purpose
from tests.machine.conftest import within
from tests.tenants.conftest import (
    AnotherProcess,
    added_server,
    check_tenants,
    connect_to,
    databases_on,
    run_command,
    throw_away,
)
from tests.tenants.forwarder import PASSWORD, Forwarder, forwarded
from tests.tenants.test_relocation import at_the_step, key_ids, mapping_of, people
from tests.world import Api, TestTenant, build_tenant
from userflow.accounts.models import EndUser
from userflow.events.models import WebhookEndpoint, WebhookMessage

STEPS = (
    "reserved",
    "created",
    "published",
    "written out",
    "read in",
    "subscribed",
    "caught up",
    "moving",
    "applied",
    "verified",
    "switched",
)


@pytest.fixture
def settled(replicating: DatabaseServer) -> Iterator[TestTenant]:
    """A tenant on a server from which it can be moved online, deleted after the test."""
    tenant = build_tenant("settled", server=replicating.name)
    yield tenant
    throw_away(tenant.row)


def move(tenant: TestTenant, server: DatabaseServer, **options: Any) -> str:
    """Move the tenant; return what the command printed."""
    return run_command("move_tenant", tenant.slug, server.name, **options)


def leftovers(*found_on: DatabaseServer) -> list[str]:
    """Return slots, subscriptions and copies of moves."""
    names = [f"copy {copy.name}" for copy in WarmDatabase.objects.filter(schema_version__startswith="for ")]
    for server in found_on:
        with servers.maintenance(server) as raw:
            names += [f"slot {name}" for (name,) in raw.execute("SELECT slot_name FROM pg_replication_slots")]
            names += [f"subscription {name}" for (name,) in raw.execute("SELECT subname FROM pg_subscription")]
    return names


def audit(command: str, slug: str) -> int:
    """Return the exit code of an audit command."""
    with pytest.raises(SystemExit) as ended:
        run_command(command, slug)
    return int(ended.value.code or 0)


# --- the data --------------------------------------------------------------------------------------------------------


def test_move_keeps_users_sessions_keys_and_trail(settled: TestTenant, second: DatabaseServer) -> None:
    before, source = mapping_of(settled).name, mapping_of(settled).server
    person = settled.register()
    token, keys = settled.sign_in(person)["access_token"], key_ids(settled)
    assert audit("seal_audit", settled.slug) == 0
    said = move(settled, second)
    assert "Online: copying" in said
    assert "rows compared equal" in said
    after = mapping_of(settled)
    assert (after.server, after.status, before in databases_on(source)) == (second, "active", False)
    assert (key_ids(settled), Api(token=token).get("/authmgr/validate").status_code) == (keys, 200)
    # New rows get their numbers from the sequences, and continue the chain.
    late = settled.register()
    assert people(settled) == {person.id, late.id}
    assert (audit("seal_audit", settled.slug), audit("verify_audit", settled.slug)) == (0, 0)
    with connect_to(settled.row) as raw:
        assert raw.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("30s",)
        assert raw.execute("SELECT reltuples FROM pg_class WHERE relname = 'userflow_enduser'").fetchone() != (-1,)
        assert raw.execute("SELECT pubname FROM pg_publication").fetchall() == []
    assert leftovers(source, second) == []


@pytest.mark.parametrize("step", ["published", "read in", "caught up"])
def test_writes_while_copying_arrive(step: str, settled: TestTenant, second: DatabaseServer) -> None:
    changed, erased = settled.register(), settled.register()
    written: list[UUID] = []

    def write() -> None:
        written.append(settled.register().id)
        with in_tenant(settled.id, Purpose.WRITE):
            EndUser.objects.filter(pk=changed.id).update(name="Changed Since", metadata={"large": "x" * 50_000})
            EndUser.objects.filter(pk=erased.id).delete()

    with at_the_step(step, write):
        move(settled, second)
    assert mapping_of(settled).server == second
    assert people(settled) == {changed.id, *written}
    with in_tenant(settled.id, Purpose.INSPECT):
        assert EndUser.objects.get(pk=changed.id).name == "Changed Since"


def test_sequences_and_large_objects_are_copied(settled: TestTenant, second: DatabaseServer) -> None:
    with connect_to(settled.row) as raw:
        raw.execute("CREATE SEQUENCE numbers; SELECT nextval('numbers'); CREATE SEQUENCE \"not Used\" START 7")
        raw.execute("CREATE TABLE counted (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, twice int"
                    " GENERATED ALWAYS AS (id * 2) STORED, word text)")  # fmt: skip
        kept, gone = (raw.execute("SELECT lo_from_bytea(0, 'first')").fetchall()[0][0] for _ in range(2))

    def write() -> None:
        with connect_to(settled.row) as raw:
            raw.execute("SELECT nextval('numbers') FROM generate_series(1, 40)")
            raw.execute("INSERT INTO counted (word) VALUES ('one'), ('two')")
            raw.execute("SELECT lo_put(%s, 0, 'later'), lo_unlink(%s), lo_from_bytea(424242, 'new')", [kept, gone])

    with at_the_step("caught up", write):
        move(settled, second)
    with connect_to(settled.row) as raw:
        assert raw.execute("SELECT nextval('numbers'), nextval('\"not Used\"')").fetchone() == (42, 7)
        assert raw.execute("INSERT INTO counted (word) VALUES ('three') RETURNING id, twice").fetchone() == (3, 6)
        objects = raw.execute("SELECT oid, lo_get(oid) FROM pg_largeobject_metadata ORDER BY lo_get(oid)").fetchall()
    assert objects == [(kept, b"later"), (424242, b"new")]


def test_outbox_keeps_its_order(settled: TestTenant, second: DatabaseServer, settings: Any) -> None:
    settings.WEBHOOK_ALLOWED_NETWORKS, settings.WEBHOOK_PLAIN_HTTP = ["127.0.0.0/8"], True
    body = {"url": "http://127.0.0.1:9/in", "events": ["*"]}
    assert settled.api.post("/uflow/webhooks/endpoints", body).status_code == 201

    def messages() -> list[Any]:
        with in_tenant(settled.id, Purpose.INSPECT):
            return list(WebhookMessage.objects.order_by("pk").values())

    sent: list[Any] = []
    first = settled.register()
    with at_the_step("verified", lambda: sent.extend(messages())):
        move(settled, second)
    assert (len(sent) > 0, messages()) == (True, sent)
    settled.register()
    assert messages()[: len(sent)] == sent
    assert len(messages()) > len(sent)
    assert first.id in people(settled)


def test_move_keeps_suspended_tenant_suspended(settled: TestTenant, second: DatabaseServer) -> None:
    person, source = settled.register(), mapping_of(settled).server
    run_command("suspend_tenant", settled.slug)
    with at_the_step("read in", lambda: audit("seal_audit", settled.slug)):
        move(settled, second)
    assert (mapping_of(settled).server, mapping_of(settled).status) == (second, "suspended")
    run_command("resume_tenant", settled.slug)
    assert settled.sign_in(person)["access_token"]
    assert (audit("verify_audit", settled.slug), leftovers(source, second)) == (0, [])


def test_tenant_suspended_during_move_stays_suspended(settled: TestTenant, second: DatabaseServer) -> None:
    with at_the_step("read in", lambda: run_command("suspend_tenant", settled.slug)):
        move(settled, second)
    assert (mapping_of(settled).server, mapping_of(settled).status) == (second, "suspended")


def test_other_jobs_are_rejected_during_move(
    settled: TestTenant, second: DatabaseServer, newer_release: AnotherProcess
) -> None:
    slug, said = settled.slug, []

    def try_jobs() -> None:
        with pytest.raises(CommandError, match="Another job"):
            run_command("delete_tenant", slug, yes=True)
        with pytest.raises(CommandError, match="Another job"):
            move(settled, second)
        said.append(newer_release.run("migrate_tenants", "--only", slug).said)

    with at_the_step("read in", try_jobs):
        move(settled, second)
    assert "another job is running" in said[0]
    assert (mapping_of(settled).server, mapping_of(settled).status) == (second, "active")


def test_move_keeps_every_acknowledged_write(settled: TestTenant, second: DatabaseServer, settings: Any) -> None:
    settings.WEBHOOK_ENDPOINTS_PER_TENANT = 1_000_000
    settings.WEBHOOK_ALLOWED_NETWORKS, settings.WEBHOOK_PLAIN_HTTP = ["127.0.0.0/8"], True
    api, over, rejected, written = settled.api, threading.Event(), set(), list[UUID]()
    retry_after: set[bool] = set()

    def write() -> None:
        try:
            while not over.is_set():
                response = api.post("/uflow/webhooks/endpoints", {"url": "http://127.0.0.1:9/in", "events": ["*"]})
                if response.status_code == 201:
                    written.append(UUID(response.json()["id"]))
                else:
                    rejected.add(response.status_code)
                    retry_after.add("Retry-After" in response.headers)
        finally:
            connections.close_all()

    def wait_for_more() -> None:
        wanted = len(written) + 5
        assert within(60, lambda: len(written) >= wanted)

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write) for _ in range(3)]
        try:
            wait_for_more()
            with at_the_step("caught up", wait_for_more):
                said = move(settled, second)
            wait_for_more()
        finally:
            over.set()
        assert [writer.result() for writer in writers] == [None] * 3
    assert "rows compared equal" in said
    # Without a write during the pause none is rejected.
    assert (rejected | {503}, retry_after | {True}) == ({503}, {True})
    with in_tenant(settled.id, Purpose.INSPECT):
        assert set(written) == set(WebhookEndpoint.objects.values_list("pk", flat=True))


# --- by dump and restore instead -------------------------------------------------------------------------------------


def obstacles(tenant: TestTenant, target: DatabaseServer) -> list[str]:
    return moves.plan_move(tenant_id=tenant.id, server=target.name).obstacles


def test_dry_run_names_the_way(settled: TestTenant, second: DatabaseServer) -> None:
    source = mapping_of(settled).server
    assert f"from {source.name} to {second.name} online" in move(settled, second, dry_run=True)
    assert "by dump and restore" in move(settled, second, dry_run=True, offline=True)
    assert (mapping_of(settled).server, leftovers(source, second)) == (source, [])


def test_server_without_logical_wal_falls_back(replicating: DatabaseServer, second: DatabaseServer) -> None:
    tenant = build_tenant("settled", server=second.name)
    reason = obstacles(tenant, replicating)[0]
    assert reason == f"{second.name} has wal_level = minimal; set it to logical."
    assert f"read-only meanwhile: {reason}" in move(tenant, replicating)
    assert mapping_of(tenant).server == replicating
    throw_away(tenant.row)


def test_full_slots_fall_back(settled: TestTenant, second: DatabaseServer) -> None:
    source = mapping_of(settled).server
    with servers.maintenance(source) as raw:
        raw.execute("SELECT pg_create_physical_replication_slot('taken_' || n) FROM generate_series(1, 10) n")
        try:
            assert obstacles(settled, second) == [
                f"{source.name} has no free replication slot; raise max_replication_slots."
            ]
            assert "no free replication slot" in move(settled, second)
        finally:
            raw.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    assert mapping_of(settled).server == second


@contextmanager
def without_privileges(url: str) -> Iterator[DatabaseServer]:
    """The server under a login that may create databases and write the server's mark, and nothing else."""
    marks = fences.database_of_marks()
    with psycopg.connect(url, autocommit=True) as raw:
        if raw.execute("SELECT 1 FROM pg_database WHERE datname = %s", [marks]).fetchone() is None:
            raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(marks)))
        with psycopg.connect(make_conninfo(url, dbname=marks), autocommit=True) as of_marks:
            of_marks.execute(fences.MARK_TABLE)
            if raw.execute("SELECT 1 FROM pg_roles WHERE rolname = 'plain'").fetchone():
                of_marks.execute("DROP OWNED BY plain")
                raw.execute("DROP ROLE plain")
            raw.execute("CREATE ROLE plain LOGIN CREATEDB")
            of_marks.execute("GRANT SELECT, INSERT, UPDATE ON server_mark TO plain")
        raw.execute("GRANT CREATE ON DATABASE postgres TO plain")
        raw.execute("GRANT pg_read_all_data, pg_signal_backend TO plain")
    with added_server("plain", make_conninfo(url, user="plain")) as server:
        yield server


def test_login_that_may_not_replicate_falls_back(replicating_url: str, second: DatabaseServer) -> None:
    with without_privileges(replicating_url) as plain:
        with psycopg.connect(replicating_url, autocommit=True) as raw:
            # The tables of the template are those of the other login.
            raw.execute("ALTER ROLE plain SUPERUSER")
            tenant = build_tenant("settled", server=plain.name)
            raw.execute("ALTER ROLE plain NOSUPERUSER")
        with psycopg.connect(make_conninfo(replicating_url, dbname=mapping_of(tenant).name)) as raw:
            # The tables were copied from the template of the other login.
            for (table,) in raw.execute("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"):
                raw.execute(f"ALTER TABLE {table} OWNER TO plain")
        assert obstacles(tenant, second) == [
            f"The admin login of {plain.name} may not replicate; ALTER ROLE … REPLICATION permits it."
        ]
        with psycopg.connect(replicating_url, autocommit=True) as raw:
            raw.execute("ALTER ROLE plain REPLICATION")
        assert obstacles(tenant, second) == []
        assert "rows compared equal" in move(tenant, second)
        throw_away(tenant.row)


def test_login_that_may_not_subscribe_falls_back(settled: TestTenant, second_url: str) -> None:
    with without_privileges(second_url) as plain:
        (reason,) = obstacles(settled, plain)
        assert f"The admin login of {plain.name} may not create subscriptions" in reason


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE TABLE odd (x int)", "Tables without a primary key, by which a changed row is found: odd."),
        ("CREATE UNLOGGED TABLE odd (x int PRIMARY KEY)", "Tables unlogged: odd."),
        ("CREATE MATERIALIZED VIEW odd AS SELECT 1 AS x", "Materialized views: odd."),
    ],
)
def test_unfit_table_falls_back(settled: TestTenant, second: DatabaseServer, statement: str, reason: str) -> None:
    with connect_to(settled.row) as raw:
        raw.execute(statement)
    assert obstacles(settled, second) == [reason]
    assert reason in move(settled, second)
    assert mapping_of(settled).server == second


@pytest.fixture
def source_port(replicating_url: str) -> Iterator[Forwarder]:
    """A port that leads to the server from which tenants are moved."""
    with forwarded(replicating_url) as port:
        yield port


@pytest.fixture
def behind_port(source_port: Forwarder) -> Iterator[TestTenant]:
    """A tenant on that server, reached over this port."""
    with added_server("forwarded", source_port.url) as server:
        tenant = build_tenant("settled", server=server.name)
        yield tenant
        source_port.closed = source_port.without_subscriptions = False
        throw_away(tenant.row)


def test_source_out_of_targets_reach_falls_back(
    behind_port: TestTenant, source_port: Forwarder, second: DatabaseServer
) -> None:
    source_port.without_subscriptions = True
    (reason,) = obstacles(behind_port, second)
    assert f"{second.name} cannot connect to {mapping_of(behind_port).server.name}: " in reason
    assert "could not connect to the publisher" in reason
    assert PASSWORD not in reason
    assert "by dump and restore" in move(behind_port, second, dry_run=True)


# --- failures --------------------------------------------------------------------------------------------------------


def test_move_whose_copy_is_cut_off_retries(
    behind_port: TestTenant, source_port: Forwarder, second: DatabaseServer
) -> None:
    source, cuts = mapping_of(behind_port).server, 0

    def cut_once() -> None:
        nonlocal cuts
        cuts += 1
        if cuts == 1:
            source_port.close_subscriptions()
        with connect_to(behind_port.row) as raw:
            # A change that the copy cannot have got before it was cut off.
            raw.execute("SET default_transaction_read_only = off")
            raw.execute("UPDATE userflow_endusercount SET users = users")

    def open_again(line: str) -> None:
        lines.append(line)
        if "Attempt 1 of" in line:
            assert behind_port.register()
            source_port.without_subscriptions = False

    lines: list[str] = []
    with at_the_step("moving", cut_once):
        moves.move_tenant(tenant_id=behind_port.id, server=second.name, pause=1, progress=open_again)
    assert "Attempt 1 of 5: not done within 1 s. Writes are accepted again." in lines
    assert (mapping_of(behind_port).server, mapping_of(behind_port).status) == (second, "active")
    assert leftovers(source, second) == []


@pytest.mark.parametrize("step", ["published", "written out", "subscribed", "applied"])
def test_unreachable_target_leaves_no_slot(step: str, settled: TestTenant, second_url: str) -> None:
    source, before = mapping_of(settled).server, mapping_of(settled).name
    with forwarded(second_url) as port, added_server("far", port.url) as far:
        with at_the_step(step, port.close), pytest.raises(CommandError, match=r"Nothing was changed|pg_") as error:
            move(settled, far)
        assert error.value.returncode == 2
        assert [left for left in leftovers(source) if not left.startswith("copy")] == []
        assert (mapping_of(settled).name, mapping_of(settled).status) == (before, "active")
        assert settled.register().id in people(settled)
        port.closed = False
        (line,) = [line for line in check_tenants(*_names_of_copies(settled), far.name) if line.startswith("leftover")]
        assert far.name in line
        check_tenants(repair=True, yes=True)
        assert leftovers(source, far) == []
        assert "rows compared equal" in move(settled, far)
        throw_away(settled.row)


def _names_of_copies(tenant: TestTenant) -> list[str]:
    return [copy.name for copy in WarmDatabase.objects.filter(schema_version=f"for {tenant.id}")]


def test_differing_copy_is_rejected(settled: TestTenant, second: DatabaseServer) -> None:
    settled.register()
    source, before = mapping_of(settled).server, mapping_of(settled).name

    def change_copy() -> None:
        (copy,) = _names_of_copies(settled)
        with connection_to(second, copy) as raw:
            raw.execute("UPDATE userflow_enduser SET name = 'another'")

    with (
        at_the_step("caught up", change_copy),
        pytest.raises(CommandError, match=r"differs from the original in public\.userflow_enduser") as error,
    ):
        move(settled, second)
    assert error.value.returncode == 2
    assert (mapping_of(settled).name, mapping_of(settled).status) == (before, "active")
    assert settled.register().id in people(settled)
    assert leftovers(source, second) == []


def test_change_that_does_not_fit_the_copy_ends_move(settled: TestTenant, second: DatabaseServer) -> None:
    person, source = settled.register(), mapping_of(settled).server

    def change_both() -> None:
        (copy,) = _names_of_copies(settled)
        with connection_to(second, copy) as raw:
            raw.execute("ALTER TABLE userflow_enduser ADD CHECK (name <> 'another')")
        with in_tenant(settled.id, Purpose.WRITE):
            EndUser.objects.filter(pk=person.id).update(name="another")

    with (
        at_the_step("subscribed", change_both),
        pytest.raises(CommandError, match="could not be applied to the copy") as error,
    ):
        move(settled, second)
    assert error.value.returncode == 2
    assert leftovers(source, second) == []
    assert settled.register().id in people(settled)


def test_password_is_in_no_log_and_not_kept(
    behind_port: TestTenant, second: DatabaseServer, second_url: str, replicating_url: str
) -> None:
    logs = []
    for url in (second_url, replicating_url):
        with psycopg.connect(url, autocommit=True) as raw:
            (folder,) = raw.execute("SHOW data_directory").fetchall()[0]
            logs.append(Path(folder) / "server.log")
            raw.execute("ALTER SYSTEM SET log_statement = 'all'")
            raw.execute("ALTER SYSTEM SET log_min_duration_statement = 0")
            raw.execute("SELECT pg_reload_conf()")
    seen: list[str] = []

    def look() -> None:
        with servers.maintenance(second) as raw:
            seen.extend(query for (query,) in raw.execute("SELECT query FROM pg_stat_activity"))

    try:
        with at_the_step("subscribed", look):
            move(behind_port, second)
    finally:
        for url in (second_url, replicating_url):
            with psycopg.connect(url, autocommit=True) as raw:
                raw.execute("ALTER SYSTEM RESET ALL")
                raw.execute("SELECT pg_reload_conf()")
    said = [log.read_text(errors="replace") for log in logs]
    assert "CREATE SUBSCRIPTION" in said[0]
    assert [line for text in (*said, *seen) for line in text.splitlines() if PASSWORD in line] == []
    with servers.maintenance(second) as raw:
        assert raw.execute("SELECT count(*) FROM pg_subscription").fetchone() == (0,)


# --- killed moves ----------------------------------------------------------------------------------------------------


def slots_on(server: DatabaseServer) -> list[replication.Slot]:
    with servers.maintenance(server) as raw:
        return replication.slots(raw)


@pytest.mark.parametrize("step", STEPS)
def test_killed_move_is_undone_by_repair_and_finished_by_rerun(
    step: str, settled: TestTenant, second: DatabaseServer, another_process: AnotherProcess
) -> None:
    person, source, slug = settled.register(), mapping_of(settled).server, settled.slug
    command = ["move_tenant", slug, second.name]
    assert another_process.run(*command, kill_after=step).code == 9
    expected = [] if step in ("reserved", "created") else [settled.id]
    assert [slot.tenant_id for slot in slots_on(source)] == expected
    check_tenants(repair=True, yes=True)
    assert leftovers(source, second) == []
    assert mapping_of(settled).status == "active"
    assert {person.id, settled.register().id} == people(settled)
    if step == "switched":
        assert mapping_of(settled).server == second
        return
    assert mapping_of(settled).server == source
    assert another_process.run(*command, kill_after=step).code == 9
    ended = another_process.run(*command)
    assert ended.code == 0, ended.said
    assert "rows compared equal" in ended.said
    assert (mapping_of(settled).server, mapping_of(settled).status) == (second, "active")
    assert (leftovers(source, second), len(people(settled))) == ([], 2)


def test_move_killed_after_switch_is_finished_by_rerun(
    settled: TestTenant, second: DatabaseServer, another_process: AnotherProcess
) -> None:
    source, before = mapping_of(settled).server, mapping_of(settled).name
    command = ["move_tenant", settled.slug, second.name]
    assert another_process.run(*command, kill_after="switched").code == 9
    person = settled.register()
    assert another_process.run(*command).code == 0
    assert (leftovers(source, second), before in databases_on(source)) == ([], False)
    assert people(settled) == {person.id}


@pytest.mark.parametrize("step", ["subscribed", "switched"])
def test_tenant_of_killed_move_can_be_deleted(
    step: str, settled: TestTenant, second: DatabaseServer, another_process: AnotherProcess
) -> None:
    source = mapping_of(settled).server
    assert another_process.run("move_tenant", settled.slug, second.name, kill_after=step).code == 9
    run_command("delete_tenant", settled.slug, yes=True)
    check_tenants(repair=True, yes=True)
    assert leftovers(source, second) == []


def test_forgotten_slot_is_found_and_dropped(settled: TestTenant, another_process: AnotherProcess) -> None:
    source, name = mapping_of(settled).server, mapping_of(settled).name
    with connection_to(source, name) as raw:
        raw.execute(
            sql.SQL("SELECT pg_create_logical_replication_slot({}, 'pgoutput')").format(
                sql.Literal(replication.name_for(settled.id))
            )
        )
    found = [each for each in repairs.find_problems() if each.kind is repairs.Kind.LEFT_SLOT]
    assert [(each.server, each.subject) for each in found] == [(source, name)]
    assert [repairs.repair(each) for each in found] == [""]
    assert slots_on(source) == []


def test_rebalancing_moves_online(settled: TestTenant, second: DatabaseServer) -> None:
    source = mapping_of(settled).server
    main = main_server()
    DatabaseServer.objects.filter(pk=main.pk).update(accepts_tenants=False)
    try:
        said = run_command("rebalance_tenants", drain=[source.name], apply=True, yes=True)
    finally:
        DatabaseServer.objects.filter(pk=main.pk).update(accepts_tenants=main.accepts_tenants)
    assert f"{settled.slug} is on {second.name}" in said
    assert (mapping_of(settled).server, leftovers(source, second)) == (second, [])
