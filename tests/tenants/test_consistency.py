"""`check_consistency`: what differs after one database was restored is found, named and repaired, and nothing else is."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.test.utils import override_settings
from django.utils.timezone import now
from psycopg import sql

from console.metrics.actions import collect_figures
from identity_platform.audit.models import ChainHead, PlatformEvent, TenantEvent
from identity_platform.crypto import new_data_key, wrap_data_key
from tenants import keys
from tenants.backups import backup_lists
from tenants.consistency import examination
from tenants.copies import databases, dumps
from tenants.database_servers import servers
from tenants.entering.context import in_tenant
from tenants.journals import audit_trails
from tenants.journals.audit_trails import THE_PLATFORM, Owner
from tenants.lifecycle.capacity import main_server
from tenants.models import DataKey, WebAuthnClaim
from tenants.records.tenant_records import changing_tenant, unlist_webhooks
from tests.copies import change_tenant
from tests.mfa.people import new_user
from tests.mfa.webauthn.passkeys import user_with_passkey
from tests.openid.sign_in_domains import DOMAINS, verified_domain
from tests.tenants.conftest import AnotherProcess, connect_to, run_command, throw_away
from tests.tenants.test_backup_sets import back_up, drop_database
from tests.userflow.directory.entra import Entra
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.world import Api, TestTenant, assert_created, populate
from userflow.accounts.models import Client
from userflow.accounts.session_models import EndUserSession
from userflow.user_index.entries import deliver
from userflow.user_index.models import IndexedEndUser, UnindexedEndUser

Two = tuple[TestTenant, TestTenant]


@pytest.fixture
def two(new_tenant: Callable[[], TestTenant]) -> Two:
    """Two tenants with a user each, who is signed in."""
    both = new_tenant(), new_tenant()
    for tenant in both:
        tenant.sign_in(tenant.register())
    return both


@pytest.fixture
def entra(settings: Any) -> Iterator[Entra]:
    """A stand-in for Entra ID."""
    standing_in = Entra()
    settings.DIRECTORY_CLOUDS = {"standin": (standing_in.base, standing_in.base)}
    yield standing_in
    standing_in.end()


def found_about(tenant: TestTenant) -> dict[str, int]:
    """Return how many of each kind are found about a tenant."""
    examined = examination.examine(Owner(tenant.slug, tenant.id))
    assert examined.problem == ""
    return {finding.kind: finding.count for finding in examined.findings}


def check(*tenants: TestTenant, **options: Any) -> tuple[int, str]:
    """Return exit code and output of `check_consistency` about these tenants."""
    out, names = StringIO(), [tenant.slug for tenant in tenants]
    with pytest.raises(SystemExit) as ended:
        call_command("check_consistency", tenant=names, stdout=out, stderr=out, **options)
    return int(ended.value.code or 0), out.getvalue()


def new_client(tenant: TestTenant, **fields: Any) -> UUID:
    body = {"name": "Shop", "type": "public", "self_registration": True, "first_party": True, **fields}
    return UUID(assert_created(tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body))["id"])


def delete_client(tenant: TestTenant, client_id: UUID) -> None:
    response = tenant.api.delete(f"/clientms/tenants/{tenant.id}/clients/{client_id}")
    assert response.status_code in (200, 204), response.content


def sign_in_at(tenant: TestTenant, client_id: UUID) -> None:
    """Register a user with the client and sign the user in there."""
    person = tenant.register(client_id=str(client_id))
    body = {"client_id": str(client_id), "email": person.email, "password": person.password}
    assert Api().post("/uflow/auth/enduser/login", body).status_code == 200


def invite(tenant: TestTenant, client_id: UUID) -> None:
    body = {"email": f"guest-{uuid4().hex[:8]}@example.com", "kind": "end_user", "client_id": str(client_id)}
    assert_created(tenant.api.post("/uflow/admin/invitations", body))


def configure_directory(tenant: TestTenant, entra: Entra) -> str:
    """Configure a directory with one user and read it; return its path."""
    body = {"name": f"Head office {uuid4().hex[:8]}", **entra.members()}
    path = f"/uflow/directory/configs/{assert_created(tenant.api.post('/uflow/directory/configs', body))['id']}"
    entra.add(f"{uuid4().hex[:8]}@example.com")
    assert tenant.api.post(f"{path}/sync", {}).status_code == 200
    return path


def listen(tenant: TestTenant) -> None:
    """Create a webhook endpoint."""
    body = {"url": "http://127.0.0.1:9/", "events": ["import.finished"]}
    with override_settings(WEBHOOK_ALLOWED_NETWORKS=["127.0.0.0/8"], WEBHOOK_PLAIN_HTTP=True):
        assert_created(tenant.api.post("/uflow/webhooks/endpoints", body))


def run_in(tenant: TestTenant, statement: str) -> None:
    with connect_to(tenant.row) as raw:
        raw.execute(statement)


def without_foreign_key(tenant: TestTenant, table: str, statement: str) -> None:
    """Execute a statement that the foreign keys to a table forbid."""
    with connect_to(tenant.row) as raw:
        keys_to = raw.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype = 'f' AND confrelid = %s::regclass",
            [table],
        ).fetchall()
        for referring, name in keys_to:
            raw.execute(f"ALTER TABLE {referring} DROP CONSTRAINT {name}")
        raw.execute(statement)


@contextmanager
def restored_global_database(found: backup_lists.BackupSet, folder: Path) -> Iterator[AnotherProcess]:
    """A process of the platform whose global database is that of the set, with the tenants' databases as they are."""
    run_command("extract_global_backup", str(found.location), str(folder / "global.dump"))
    name = f"restored_{uuid4().hex[:8]}"
    with servers.maintenance(main_server()) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        process = None
        try:
            dumps.read_in(main_server(), name, folder / "global.dump")
            process = AnotherProcess("identity_platform.settings", name)
            # It is older than the servers, so it is fenced until an operator makes it the installation.
            adopted = process.run("adopt_installation", "--yes")
            assert adopted.code == 0, adopted.said
            yield process
        finally:
            if process is not None:
                process.end()
                run_command("adopt_installation", yes=True)
            databases.drop(raw, name)


# --- nothing is found ------------------------------------------------------------------------------------------------


def test_healthy_tenants_have_no_findings(two: Two, name_server: DnsServer, entra: Entra) -> None:
    acme, zephyr = two
    for tenant in two:
        populate(tenant)
        new_user(tenant).enrol_totp()
        new_user(tenant).enrol_phone()
        user_with_passkey(tenant)
        verified_domain(tenant, name_server)
        made = verified_domain(tenant, name_server)
        change = {"sign_in": True, "disable_passkeys": True}
        assert tenant.api.patch(f"{DOMAINS}/{made['id']}", change).status_code == 200
        configure_directory(tenant, entra)
        for client_id in (new_client(tenant), gone := new_client(tenant)):
            sign_in_at(tenant, client_id)
            invite(tenant, client_id)
        delete_client(tenant, gone)
        audit_trails.seal(Owner(tenant.slug, tenant.id), wait=120)
        assert tenant.api.delete(configure_directory(tenant, entra)).status_code == 200
    collect_figures(only=[tenant.slug for tenant in two], settled=0)
    code, said = check(acme, zephyr)
    assert (code, said.splitlines()[-1]) == (0, "No contradictions found."), said


def test_nothing_is_found_while_users_come_and_go(two: Two) -> None:
    tenant, ended = two[0], threading.Event()

    def live() -> None:
        try:
            while not ended.is_set():
                client_id = new_client(tenant, backchannel_logout_uri="https://shop.example.com/logout")
                sign_in_at(tenant, client_id)
                person = tenant.register()
                delete_client(tenant, client_id)
                body = {"tenant_id": str(tenant.id), "user_id": str(person.id)}
                assert tenant.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
        finally:
            connections.close_all()

    users = threading.Thread(target=live)
    users.start()
    try:
        assert [found_about(tenant) for _ in range(5)] == [{}] * 5
    finally:
        ended.set()
        users.join()


# --- one database is older than the other ----------------------------------------------------------------------------


def test_older_global_database_is_found(two: Two, entra: Entra, tmp_path: Path) -> None:
    acme, zephyr = two
    found = back_up(tmp_path, acme, zephyr, test=0)
    client_id = new_client(acme)
    sign_in_at(acme, client_id)
    invite(acme, client_id)
    configure_directory(acme, entra)
    listen(acme)
    with restored_global_database(found, tmp_path) as older:
        named = ["--tenant", acme.slug, "--tenant", zephyr.slug]
        ended = older.run("check_consistency", *named, "--json")
        listed = json.loads(ended.said)
        assert ended.code == 1
        assert {entry["tenant"] for entry in listed} == {acme.slug}
        kinds = {entry["finding"]: entry["repairable"] for entry in listed}
        assert kinds == {
            "newer tenant record": False,
            "newer client record": False,
            "users of lost client": False,
            "sessions of missing client": True,
            "invitations of lost client": False,
            "users of lost directory": False,
            "unlisted webhooks": True,
            "index of end users": True,
        }
        assert [entry["ids"] for entry in listed if entry["finding"].endswith(" client")] == [[str(client_id)]] * 3
        assert "@" not in ended.said
        ended = older.run("check_consistency", *named, "--repair", "--yes")
        assert ended.code == 1
        last = ended.said.rpartition("tenant\tfinding")[2]
        # The change that lists the webhooks has replaced the record.
        left = [kind for kind in kinds if not kinds[kind] and kind != "newer tenant record"]
        assert [kind for kind in kinds if f"\t{kind}\t" in last] == left
    with in_tenant(acme.id):
        ends = EndUserSession.objects.filter(client_id=client_id).values_list("end_reason", flat=True)
        assert set(ends) == {"client_deleted"}
        repaired = TenantEvent.objects.filter(action="consistency.repaired").values_list("details", flat=True)
        assert list(repaired) == [{"found": "sessions of missing client", "rows": 1}]


def test_older_tenant_database_is_found(two: Two, entra: Entra, tmp_path: Path) -> None:
    acme, zephyr = two
    file = tmp_path / "acme.backup"
    path = configure_directory(acme, entra)
    run_command("backup_tenant", acme.slug, str(file))
    entra.add(f"{uuid4().hex[:8]}@example.com")
    acme.api.post(f"{path}/sync", {})
    for tenant in two:
        audit_trails.seal(Owner(tenant.slug, tenant.id), wait=120)
    collect_figures(only=[tenant.slug for tenant in two], settled=0)
    run_command("restore_tenant", acme.slug, str(file), yes=True)
    assert found_about(acme) == {
        "audit chain": 1,
        "directory ahead of its users": 1,
        "metrics ahead of audit log": 1,
    }
    assert found_about(zephyr) == {}
    audit_trails.accept_end(Owner(acme.slug, acme.id))
    code, _ = check(acme, zephyr, repair=True, yes=True)
    assert code == 0
    events = PlatformEvent.objects.filter(tenant_id=acme.id, action="consistency.repaired")
    assert {event.details["found"] for event in events} == {
        "directory ahead of its users",
        "metrics ahead of audit log",
    }


def test_domains_of_older_tenant_database_are_recorded(two: Two, name_server: DnsServer, tmp_path: Path) -> None:
    tenant = two[0]
    file = tmp_path / "tenant.backup"
    run_command("backup_tenant", tenant.slug, str(file))
    verified_domain(tenant, name_server)
    run_command("restore_tenant", tenant.slug, str(file), yes=True)
    assert found_about(tenant) == {"domains": 1}
    assert check(tenant, repair=True, yes=True)[0] == 0


def test_sessions_of_deleted_client_are_ended(two: Two) -> None:
    tenant = two[0]
    client_id = new_client(tenant)
    sign_in_at(tenant, client_id)
    delete_client(tenant, client_id)
    # As in a database that was restored to the time before.
    with in_tenant(tenant.id):
        EndUserSession.objects.filter(client_id=client_id).update(ended_at=None)
    assert found_about(tenant) == {"sessions of missing client": 1}
    assert check(tenant, repair=True, yes=True)[0] == 0


# --- rows are gone ---------------------------------------------------------------------------------------------------


def test_orphaned_rows_are_deleted(two: Two) -> None:
    tenant, other = two
    without_foreign_key(tenant, "userflow_enduser", "DELETE FROM userflow_enduser")
    kinds = found_about(tenant)
    assert kinds["orphaned rows of userflow_rolebinding.user_id"] == 1
    assert kinds["orphaned rows of userflow_endusersession.user_id"] == 1
    assert found_about(other) == {}
    assert check(tenant, other, repair=True, yes=True)[0] == 0


def lose_default_role(tenant: TestTenant) -> None:
    run_in(tenant, "DELETE FROM userflow_rolebinding; DELETE FROM userflow_role WHERE name = 'user'")


def lose_counts(tenant: TestTenant) -> None:
    run_in(tenant, "UPDATE userflow_endusercount SET users = users + 3")


def lose_service_counts(tenant: TestTenant) -> None:
    body = {"name": "crm", "type": "crm", "base_url": "https://crm.example.com"}
    assert_created(tenant.api.post("/exsvc/api/v1/services", body))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM registry_servicecount WHERE tenant_id = %s AND type <> ''", [tenant.id])


def lose_factor(tenant: TestTenant) -> None:
    new_user(tenant).enrol_totp()
    run_in(tenant, "DELETE FROM mfa_endusertotpsecret")


def lose_webhook_row(tenant: TestTenant) -> None:
    listen(tenant)
    unlist_webhooks(tenant.id, untouched_since=now())


def lose_passkey_claim(tenant: TestTenant) -> None:
    with changing_tenant(tenant.id):
        change_tenant(tenant.id, settings={"webauthn_rp_id": f"{tenant.slug}.example"})


def keep_passkey_claim(tenant: TestTenant) -> None:
    WebAuthnClaim.objects.create(name=f"{tenant.slug}.example", tenant_id=tenant.id)


def lose_relying_party(tenant: TestTenant) -> None:
    user_with_passkey(tenant)
    run_in(tenant, "UPDATE mfa_enduserpasskey SET rp_id = 'lost.example'")


def lose_domains(tenant: TestTenant) -> None:
    assert_created(tenant.api.post("/uflow/federation/domains", {"domain": f"{tenant.slug}.example"}))
    change_tenant(tenant.id, has_domains=None)


def lose_index_entry(tenant: TestTenant) -> None:
    user = tenant.register()
    deliver(tenant.id)
    IndexedEndUser.objects.filter(tenant_id=tenant.id, user_id=user.id).delete()


def lose_migration(tenant: TestTenant) -> None:
    run_in(tenant, "DELETE FROM django_migrations WHERE app = 'mfa' AND name LIKE '0001%'")


@pytest.mark.parametrize(
    ("damage", "kind", "count", "repaired"),
    [
        (lose_default_role, "missing role", 1, False),
        (lose_counts, "wrong user count", 3, True),
        (lose_service_counts, "wrong service count", 1, True),
        (lose_factor, "factors and methods differ", 1, False),
        (lose_webhook_row, "unlisted webhooks", 1, True),
        (lose_passkey_claim, "unclaimed passkey domain", 1, True),
        (keep_passkey_claim, "unused passkey claim", 1, True),
        (lose_relying_party, "passkeys of unknown domain", 1, False),
        (lose_domains, "unlisted domains", 1, True),
        (lose_index_entry, "index of end users", 1, True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damage_is_found_and_repaired(
    two: Two, damage: Callable[[TestTenant], None], kind: str, count: int, repaired: bool
) -> None:
    tenant, other = two
    damage(tenant)
    assert found_about(tenant) == {kind: count}
    assert found_about(other) == {}
    code, said = check(tenant, repair=True, yes=True)
    assert code == (0 if repaired else 1), said
    assert found_about(tenant) == ({} if repaired else {kind: count})


def test_users_who_wait_for_their_entry_for_long_are_a_finding(two: Two) -> None:
    tenant = two[0]
    user = tenant.register()
    assert found_about(tenant) == {}
    with in_tenant(tenant.id):
        UnindexedEndUser.objects.filter(user_id=user.id).update(noted_at=now() - timedelta(hours=3))
    assert found_about(tenant) == {"index of end users": 1}
    deliver(tenant.id)
    assert found_about(tenant) == {}


def test_index_finding_names_the_users(two: Two) -> None:
    # Otherwise two users who come and go, each seen in one of the two looks, would be taken for a finding.
    tenant = two[0]
    users = [tenant.register() for _ in range(3)]
    deliver(tenant.id)
    IndexedEndUser.objects.filter(tenant_id=tenant.id, user_id=users[0].id).delete()
    IndexedEndUser.objects.filter(tenant_id=tenant.id, user_id=users[1].id).update(digest=b"z" * 16)
    (finding,) = examination.examine(Owner(tenant.slug, tenant.id)).findings
    assert finding.rows == {str(user.id): 1 for user in users[:2]}


def test_missing_migration_is_found(two: Two) -> None:
    tenant = two[0]
    lose_migration(tenant)
    assert found_about(tenant) == {"schema": 1}
    code, said = check(tenant, repair=True, yes=True)
    # From now on migrate_tenants takes it up.
    assert code == 3
    assert "its schema is not that of this release: run migrate_tenants" in said
    # There it would fail, since the tables exist, and as the first one it would keep other tests' tenants from theirs.
    throw_away(tenant.row)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_secrets_under_another_data_key_are_found(two: Two) -> None:
    tenant, other = populate(two[0]), two[1]
    new_user(tenant).enrol_totp()
    new_user(tenant).enrol_phone()
    wrapped = wrap_data_key(new_data_key(), owner=str(tenant.id))
    row = DataKey.objects.get(pk=str(tenant.id))
    DataKey.objects.filter(pk=row.pk).update(ring_key_id=wrapped.key_id, wrapped=wrapped.blob)
    keys.forget(row.owner)
    assert found_about(tenant) == {
        "unreadable signing keys": 2,
        "unreadable webhook secrets": 2,
        "unreadable service credentials": 2,
        "unreadable authenticator secrets": 1,
        "unreadable phone numbers": 1,
    }
    DataKey.objects.filter(pk=row.pk).update(wrapped=b"broken")
    assert found_about(tenant) == {"data key": 1}
    assert found_about(other) == {}
    row.save()
    keys.forget(row.owner)


def test_data_key_without_tenant_is_found() -> None:
    keys.create(owner := str(uuid4()))
    found = {finding.kind: finding for finding in examination.examine(THE_PLATFORM).findings}
    DataKey.objects.filter(pk=owner).delete()
    assert owner in found["data key without tenant"].rows


# --- the command -----------------------------------------------------------------------------------------------------


def test_broken_tenant_stops_no_other(two: Two) -> None:
    acme, zephyr = two
    drop_database(acme)
    code, said = check(acme, zephyr, jobs=1)
    assert code == 3
    # The reason is PostgreSQL's or the pooler's.
    assert f"{acme.slug}: not examined, " in said
    lose_counts(zephyr)
    assert check(acme, zephyr)[0] == 1


def test_output_names_tenant_ids_and_remedy(two: Two) -> None:
    tenant = two[0]
    client_id = new_client(tenant)
    sign_in_at(tenant, client_id)
    Client.objects.filter(pk=client_id).delete()
    code, said = check(tenant)
    line = next(line for line in said.splitlines() if "\tsessions of missing client\t" in line).split("\t")
    assert (code, line[:4]) == (1, [tenant.slug, "sessions of missing client", "1", str(client_id)])
    assert line[5].startswith("--repair ends them")
    assert "@example.com" not in said


def test_repair_asks_first(two: Two) -> None:
    tenant = two[0]
    lose_counts(tenant)
    with pytest.raises(Exception, match="Confirm with --yes"):
        call_command("check_consistency", tenant=[tenant.slug], repair=True, stdout=StringIO())
    assert found_about(tenant) == {"wrong user count": 3}


def test_failed_repair_changes_nothing_and_is_reported(two: Two) -> None:
    tenant = two[0]
    lose_counts(tenant)
    # The audit event of the repair cannot be written.
    run_in(tenant, "ALTER TABLE audit_tenantevent ADD CHECK (action <> 'consistency.repaired')")
    code, said = check(tenant, repair=True, yes=True)
    assert code == 1
    assert f"{tenant.slug}: wrong user count: CheckViolation" in said
    assert found_about(tenant) == {"wrong user count": 3}


def test_suspended_tenant_is_examined_and_repaired(two: Two) -> None:
    tenant = two[0]
    run_command("suspend_tenant", tenant.slug)
    lose_counts(tenant)
    assert check(tenant, repair=True, yes=True)[0] == 0


def test_passing_difference_is_no_finding(two: Two) -> None:
    tenant = two[0]
    head = ChainHead(owner=str(tenant.id), number=9, mac=b"ahead", sealed_at=now())
    head.save()
    gone = threading.Timer(0.7, lambda: (ChainHead.objects.filter(pk=head.pk).delete(), connections.close_all()))
    gone.start()
    assert found_about(tenant) == {}
    gone.join()
