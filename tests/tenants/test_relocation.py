"""Back up, restore and move tenants in use, also with killed jobs."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError
from django.db import connections

from tenants import job_steps
from tenants.consistency import repairs
from tenants.copies import databases
from tenants.database_servers import servers
from tenants.database_servers.queries import connection_to
from tenants.entering.context import in_tenant
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, TenantDatabase, WarmDatabase
from tenants.states import Purpose
from tests.machine.conftest import within
from tests.tenants.conftest import (
    AnotherProcess,
    check_tenants,
    connect_to,
    databases_on,
    run_command,
    throw_away,
)
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.user_index.reading import indexed
from tests.world import Api, TestTenant, User, build_tenant
from userflow.accounts.models import EndUser
from userflow.events.models import WebhookEndpoint
from userflow.sessions import signing
from userflow.webhooks.signing import open_secret

MOVING = ["moving", "written out", "reserved", "created", "read in", "verified", "switched"]


@pytest.fixture
def settled(django_db_setup: None) -> Iterator[TestTenant]:
    """A tenant on the main server, deleted after the test."""
    tenant = build_tenant("settled")
    yield tenant
    throw_away(tenant.row)


def mapping_of(tenant: TestTenant) -> TenantDatabase:
    return TenantDatabase.objects.select_related("server").get(pk=tenant.id)


def people(tenant: TestTenant) -> set[UUID]:
    with in_tenant(tenant.id, Purpose.INSPECT):
        return set(EndUser.objects.values_list("pk", flat=True))


_earlier: list[tuple[str, str]] = []


def problems() -> list[tuple[str, str]]:
    kinds = (repairs.Kind.ORPHAN, repairs.Kind.LEFT_COPY, repairs.Kind.MOVING)
    return [(str(found.kind), found.subject) for found in repairs.find_problems() if found.kind in kinds]


@pytest.fixture(autouse=True)
def _remember_earlier_problems(_databases: None) -> None:
    """Tell what other tests have left from what a test here leaves."""
    _earlier[:] = problems()


def wrong() -> list[str]:
    return [kind for kind, subject in problems() if (kind, subject) not in _earlier]


def key_ids(tenant: TestTenant) -> set[str]:
    return {key["kid"] for key in Api().get(f"/t/{tenant.slug}/jwks").json()["keys"]}


def test_move_and_restore_keep_signing_keys(settled: TestTenant, second: DatabaseServer, tmp_path: Path) -> None:
    token = settled.sign_in(settled.register())["access_token"]
    before = key_ids(settled)
    run_command("move_tenant", settled.slug, second.name, offline=True)
    assert (key_ids(settled), Api(token=token).get("/authmgr/validate").status_code) == (before, 200)
    run_command("backup_tenant", settled.slug, str(tmp_path / "settled.backup"))
    run_command("rotate_signing_keys", tenant=settled.slug, at_once=True)
    assert key_ids(settled) > before
    run_command("restore_tenant", settled.slug, str(tmp_path / "settled.backup"), yes=True)
    signing.forget(settled.id)  # a process reads the keys again after ten seconds
    # The keys that were rotated out since the backup verify only: their successors are published.
    assert key_ids(settled) > before


def test_restore_returns_to_backup(settled: TestTenant, tmp_path: Path) -> None:
    kept, file, before = settled.register(), tmp_path / "settled.backup", mapping_of(settled).name
    opened = open_things(settled, kept)
    run_command("backup_tenant", settled.slug, str(file))
    assert Api(token=opened["access"]).post("/authmgr/logout", {"all": True}).status_code == 200
    late = settled.register()
    with in_tenant(settled.id):
        EndUser.objects.filter(pk=kept.id).update(name="Changed Since")
    run_command("restore_tenant", settled.slug, str(file), yes=True)
    assert people(settled) == {kept.id}
    assert (indexed(settled, kept.email), indexed(settled, late.email)) == ([kept.id], [])
    assert settled.sign_in(kept)["access_token"]
    rejected = Api().post(
        "/uflow/auth/enduser/login",
        {"client_id": str(settled.client_id), "email": late.email, "password": late.password},
    )
    assert rejected.status_code == 401
    assert before not in databases_on(main_server())
    assert settled.register().id in people(settled)
    assert wrong() == []
    # Sessions that were open at the time of the backup may have been closed since, for example as stolen.
    assert tried(opened) == {"access": 401, "refresh": 400, "reset": 400, "invitation": 400}


def open_things(tenant: TestTenant, person: User) -> dict[str, str]:
    """The tokens of a session, of a link to set a password and of an invitation."""
    signed_in = tenant.sign_in(person)
    forgot = {"email": person.email, "tenant_id": str(tenant.id)}
    assert Api().post("/uflow/auth/enduser/password/forgot", forgot).status_code == 200
    (reset,) = mails_to(person.email, "new password")
    invited = f"invited-{person.id.hex}@example.com"
    asked = {"email": invited, "kind": "end_user", "client_id": str(tenant.client_id)}
    assert tenant.api.post("/uflow/admin/invitations", asked).status_code == 201
    return {
        "access": signed_in["access_token"],
        "refresh": signed_in["refresh_token"],
        "reset": reset.body.partition("token=")[2].split()[0],
        "invitation": token_in(mails_to(invited)[-1]),
    }


def tried(opened: dict[str, str]) -> dict[str, int]:
    """Return the response to each token."""
    password = {"password": "another horse 9 battery"}
    responses = {
        "access": Api(token=opened["access"]).get("/authmgr/validate"),
        "refresh": Api().post("/authmgr/token", {"grant_type": "refresh_token", "refresh_token": opened["refresh"]}),
        "reset": Api().post("/uflow/auth/enduser/password/reset", {"token": opened["reset"], **password}),
        "invitation": Api().post("/uflow/invitations/accept", {"token": opened["invitation"], **password}),
    }
    return {name: response.status_code for name, response in responses.items()}


def test_backup_file_is_private(settled: TestTenant, tmp_path: Path) -> None:
    file = tmp_path / "settled.backup"
    run_command("backup_tenant", settled.slug, str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["settled.backup"]


def test_backup_is_of_one_moment(settled: TestTenant, tmp_path: Path) -> None:
    kept, file = settled.register(), tmp_path / "settled.backup"
    with at_the_step("dumped", settled.register):
        run_command("backup_tenant", settled.slug, str(file))
    assert len(people(settled)) == 2
    # The copy must have as many rows as were counted.
    run_command("restore_tenant", settled.slug, str(file), yes=True)
    assert people(settled) == {kept.id}


def test_next_backup_removes_leftovers_of_killed_backup(
    settled: TestTenant, another_process: AnotherProcess, tmp_path: Path
) -> None:
    slug = settled.slug
    yesterday, today, people = tmp_path / "yesterday.backup", tmp_path / "today.backup", tmp_path / "people.jsonl"
    assert another_process.run("backup_tenant", slug, str(yesterday), kill_after="written out").code == 9
    (dump,) = tmp_path.rglob("partial")
    run_command("export_users", slug, str(people))
    assert dump.exists()  # on a shared disk another machine may be using it
    for path in (dump, dump.with_name(".lock"), dump.parent):
        os.utime(path, (0, 0))
    with at_the_step("written out", lambda: run_command("export_users", slug, str(people))):
        run_command("backup_tenant", slug, str(today))
    # The second job was running when the third began, and kept its folder.
    assert sorted(tmp_path.iterdir()) == [people, today]


def test_restore_recovers_lost_database(settled: TestTenant, tmp_path: Path) -> None:
    person, file = settled.register(), tmp_path / "settled.backup"
    run_command("backup_tenant", settled.slug, str(file))
    with servers.maintenance(main_server()) as raw:
        databases.drop(raw, mapping_of(settled).name)
    (line,) = check_tenants(settled.slug, repair=True, yes=True)
    assert line.startswith("failed\t")
    assert mapping_of(settled).status == "failed"
    run_command("restore_tenant", settled.slug, str(file), yes=True)
    assert (mapping_of(settled).status, mapping_of(settled).reason) == ("active", "")
    assert settled.sign_in(person)["access_token"]


def test_restore_rejects_foreign_backup_and_other_files(
    settled: TestTenant, other_tenant: TestTenant, tmp_path: Path
) -> None:
    others, nonsense = tmp_path / "others.backup", tmp_path / "nonsense.backup"
    run_command("backup_tenant", other_tenant.slug, str(others))
    nonsense.write_bytes(b"PK nothing")
    for file in (others, nonsense, tmp_path / "there-is-none.backup"):
        with pytest.raises(CommandError, match="backup") as error:
            run_command("restore_tenant", settled.slug, str(file), yes=True)
        assert error.value.returncode == 2
    assert mapping_of(settled).status == "active"


def test_moved_tenant_works_with_its_users(settled: TestTenant, second: DatabaseServer) -> None:
    person, before = settled.register(), mapping_of(settled).name
    token = settled.as_user(person)
    run_command("move_tenant", settled.slug, second.name, offline=True)
    after = mapping_of(settled)
    assert (after.server, after.status) == (second, "active")
    assert after.name in databases_on(second)
    assert before not in databases_on(main_server())
    assert token.get(f"/uflow/user/enduser/{settled.id}/{person.id}").status_code == 200
    assert settled.register().id in people(settled)
    assert wrong() == []


def test_move_keeps_suspended_tenant_suspended(settled: TestTenant, second: DatabaseServer) -> None:
    person = settled.register()
    run_command("suspend_tenant", settled.slug)
    run_command("move_tenant", settled.slug, second.name, offline=True)
    assert (mapping_of(settled).server, mapping_of(settled).status) == (second, "suspended")
    run_command("resume_tenant", settled.slug)
    assert settled.sign_in(person)["access_token"]


@contextmanager
def at_the_step(step: str, act: Callable[[], object]) -> Iterator[None]:
    """Run a function in another thread between two steps of a job."""

    def listen(ended: str) -> None:
        if ended == step:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(_and_hang_up, act).result()

    with job_steps.observed_by(listen):
        yield


def _and_hang_up(act: Callable[[], object]) -> None:
    try:
        act()
    finally:
        connections.close_all()


def test_move_keeps_every_acknowledged_write(settled: TestTenant, second: DatabaseServer, settings: Any) -> None:
    settings.WEBHOOK_ENDPOINTS_PER_TENANT = 1_000_000
    settings.WEBHOOK_ALLOWED_NETWORKS, settings.WEBHOOK_PLAIN_HTTP = ["127.0.0.0/8"], True
    api, over, rejected = settled.api, threading.Event(), set()
    written: dict[UUID, str] = {}

    def write() -> None:
        while not over.is_set():
            # Its secret is sealed with the tenant's data key.
            response = api.post("/uflow/webhooks/endpoints", {"url": "http://127.0.0.1:9/in", "events": ["*"]})
            if response.status_code == 201:
                written[UUID(response.json()["id"])] = response.json()["secret"]
            else:
                rejected.add(response.status_code)

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(_and_hang_up, write) for _ in range(2)]
        try:
            # The move may be over before a slow machine has written anything.
            assert within(60, lambda: len(written) > 0)
            run_command("move_tenant", settled.slug, second.name, offline=True)
        finally:
            over.set()
        assert [writer.result() for writer in writers] == [None, None]
    assert (rejected, len(written) > 0) == ({503}, True)
    with in_tenant(settled.id):
        found = WebhookEndpoint.objects.in_bulk(list(written))
        opened = {
            key: open_secret(bytes(row.secret_sealed), endpoint_id=key, tenant_id=settled.id)
            for key, row in found.items()
        }
    assert opened == written


def test_trail_sealed_during_move_of_suspended_tenant_is_intact(settled: TestTenant, second: DatabaseServer) -> None:
    slug = settled.slug
    settled.register()
    run_command("suspend_tenant", slug)

    def audit(command: str) -> int:
        with pytest.raises(SystemExit) as ended:
            run_command(command, slug)
        return int(ended.value.code or 0)

    with at_the_step("written out", lambda: audit("seal_audit")):
        run_command("move_tenant", slug, second.name, offline=True)
    assert (audit("seal_audit"), audit("verify_audit")) == (0, 0)


def test_resume_is_rejected_during_move(settled: TestTenant, second: DatabaseServer) -> None:
    slug = settled.slug
    run_command("suspend_tenant", slug)

    def resume() -> None:
        with pytest.raises(CommandError, match="Another job"):
            run_command("resume_tenant", slug)

    with at_the_step("written out", resume):
        run_command("move_tenant", slug, second.name, offline=True)
    run_command("resume_tenant", slug)
    assert settled.register().id in people(settled)


@pytest.mark.parametrize("repair", [True, False])
def test_repair_makes_suspended_tenant_writable_again(
    settled: TestTenant, second: DatabaseServer, another_process: AnotherProcess, repair: bool
) -> None:
    slug = settled.slug
    run_command("suspend_tenant", slug)
    another_process.run("move_tenant", slug, second.name, "--offline", kill_after="written out")
    assert wrong() == ["interrupted move"]
    if repair:
        assert check_tenants(slug, repair=True, yes=True) == []
        assert (mapping_of(settled).status, wrong()) == ("suspended", [])
    run_command("resume_tenant", slug)
    assert (settled.register().id in people(settled), wrong()) == (True, [])


def test_move_to_current_server_is_rejected(settled: TestTenant) -> None:
    with pytest.raises(CommandError, match="already"):
        run_command("move_tenant", settled.slug, "main")
    assert mapping_of(settled).status == "active"


def test_tenant_moves_back_unless_that_server_is_older(settled: TestTenant, second: DatabaseServer) -> None:
    person = settled.register()
    run_command("move_tenant", settled.slug, second.name, offline=True)
    main = main_server()
    versions = [postgresql_of(server) for server in (main, second)]
    if versions[0] < versions[1]:
        with pytest.raises(
            CommandError, match=f"main runs PostgreSQL {versions[0]} and {second.name} runs {versions[1]}"
        ):
            run_command("move_tenant", settled.slug, main.name, offline=True)
    else:
        run_command("move_tenant", settled.slug, main.name, offline=True)
    stays = second if versions[0] < versions[1] else main
    assert (mapping_of(settled).server, mapping_of(settled).status) == (stays, "active")
    assert settled.sign_in(person)["access_token"]


def postgresql_of(server: DatabaseServer) -> int:
    with servers.maintenance(server) as raw:
        return raw.info.server_version // 10_000


def test_failed_move_changes_nothing(settled: TestTenant, second: DatabaseServer) -> None:
    person, spares = settled.register(), WarmDatabase.objects.count()
    # A row that violates a constraint of its table, so pg_restore fails.
    with connect_to(settled.row) as raw:
        raw.execute("CREATE FUNCTION broken() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'")
        raw.execute("CREATE TABLE odd (x int CHECK (broken() = x))")
        raw.execute("INSERT INTO odd VALUES (1)")
        raw.execute("CREATE OR REPLACE FUNCTION broken() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2'")
    with pytest.raises(CommandError, match="pg_restore") as error:
        run_command("move_tenant", settled.slug, second.name, offline=True)
    assert error.value.returncode == 2
    assert (mapping_of(settled).server, mapping_of(settled).status) == (main_server(), "active")
    assert WarmDatabase.objects.count() == spares
    assert settled.sign_in(person)["access_token"]
    assert settled.register().id in people(settled)
    assert wrong() == []


@pytest.mark.parametrize(
    "lose",
    ["DELETE FROM userflow_rolebinding WHERE user_id = %s", "DROP TABLE userflow_rolebinding"],
    ids=["a row", "a table"],
)
def test_move_rejects_copy_with_fewer_rows(settled: TestTenant, second: DatabaseServer, lose: str) -> None:
    settled.register()
    person, before = settled.register(), mapping_of(settled).name

    def lose_it() -> None:
        copy = WarmDatabase.objects.get(server=second, schema_version=f"for {settled.id}")
        with connection_to(second, copy.name) as raw:
            raw.execute(lose, [person.id] if "%s" in lose else None)

    with at_the_step("read in", lose_it), pytest.raises(CommandError, match="fewer rows than the original") as error:
        run_command("move_tenant", settled.slug, second.name, offline=True)
    assert error.value.returncode == 2
    assert (mapping_of(settled).server, mapping_of(settled).name) == (main_server(), before)
    assert before in databases_on(main_server())
    assert settled.sign_in(person)["access_token"]
    assert wrong() == []


def test_writes_are_rejected_during_move(
    settled: TestTenant, second: DatabaseServer, another_process: AnotherProcess
) -> None:
    person = settled.register()
    user = settled.as_user(person)
    another_process.run("move_tenant", settled.slug, second.name, "--offline", kill_after="written out")
    mine = f"/uflow/user/enduser/{settled.id}/{person.id}"
    assert user.get(mine).status_code == 200
    assert user.put(mine, {"name": "Lost Change"}).status_code == 503
    with connect_to(settled.row) as raw:
        assert raw.execute("SHOW default_transaction_read_only").fetchone() == ("on",)
    (line,) = check_tenants(settled.slug)
    assert line.startswith("interrupted move\t")
    run_command("move_tenant", settled.slug, second.name, offline=True)
    assert user.put(mine, {"name": "Kept Change"}).status_code == 200


@pytest.mark.parametrize("step", MOVING)
def test_killed_move_is_finished_by_same_command(
    step: str, settled: TestTenant, second: DatabaseServer, another_process: AnotherProcess
) -> None:
    person = settled.register()
    command = ["move_tenant", settled.slug, second.name, "--offline"]
    assert another_process.run(*command, kill_after=step).code == 9
    assert ("leftover copy" if step == "switched" else "interrupted move") in wrong()
    assert another_process.run(*command).code == 0
    assert (mapping_of(settled).server, mapping_of(settled).status) == (second, "active")
    assert person.id in people(settled)
    assert settled.register().id in people(settled)
    assert wrong() == []


@pytest.mark.parametrize("late", ["restore_tenant", "move_tenant"])
def test_job_after_restore_uses_restored_database(
    late: str, settled: TestTenant, second: DatabaseServer, another_process: AnotherProcess, tmp_path: Path
) -> None:
    slug, file = settled.slug, str(tmp_path / "settled.backup")
    run_command("backup_tenant", slug, file)
    words = [late, slug, *([file, "--yes"] if late == "restore_tenant" else [second.name])]
    with ThreadPoolExecutor(1) as pool:
        waiting: list[Any] = []

        def begin() -> None:
            waiting.append(pool.submit(another_process.run, *words))
            within(10, lambda: waits_for_a_lock() or waiting[0].done())

        with at_the_step("read in", begin):
            run_command("restore_tenant", slug, file, yes=True)
        ended = waiting[0].result()
    # On a slow machine it stops waiting: then it reports that, and leaves nothing behind.
    assert ended.code == 0 or "Another job" in ended.said
    assert (mapping_of(settled).status, wrong()) == ("active", [])
    assert settled.register().id in people(settled)


def waits_for_a_lock() -> bool:
    with servers.maintenance(main_server()) as raw:
        asked = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        return raw.execute(asked).fetchone() == (True,)


def test_repair_keeps_tenant_restored_while_operator_was_asked(settled: TestTenant, tmp_path: Path) -> None:
    slug, file = settled.slug, str(tmp_path / "settled.backup")
    run_command("backup_tenant", slug, file)
    with servers.maintenance(main_server()) as raw:
        databases.drop(raw, mapping_of(settled).name)
    (missing,) = [finding for finding in repairs.find_problems() if finding.subject == slug]
    run_command("restore_tenant", slug, file, yes=True)
    repairs.repair(missing)
    assert mapping_of(settled).status == "active"


def test_repair_undoes_killed_move(
    settled: TestTenant, second: DatabaseServer, another_process: AnotherProcess
) -> None:
    another_process.run("move_tenant", settled.slug, second.name, "--offline", kill_after="read in")
    assert sorted(wrong()) == ["interrupted move", "leftover copy"]
    assert check_tenants(settled.slug, repair=True, yes=True) == []
    assert (mapping_of(settled).server, mapping_of(settled).status) == (main_server(), "active")
    assert settled.register().id in people(settled)
    assert wrong() == []
