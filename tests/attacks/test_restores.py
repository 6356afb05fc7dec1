"""An attacker who waits for a restore: restoring brings data back, and nothing that was revoked since the backup."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.core.management import CommandError
from django.db import close_old_connections, connection, transaction
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent
from identity_platform.restoring import RestoredRow
from mfa.totp.models import EndUserTotpSecret
from tenants import keys
from tenants.entering.context import in_tenant
from tenants.entering.target import TENANT_ALIAS
from tenants.journals import audit_trails, deliveries
from tenants.lifecycle import retention
from tenants.models import DatabaseServer, JournaledRevocation, UndeliveredRevocation
from tests.attacks import restored_authority as authority
from tests.attacks.restored_authority import Authority
from tests.tenants.conftest import connect_to, run_command, throw_away
from tests.tenants.conftest import second as second
from tests.tenants.conftest import second_url as second_url
from tests.tenants.test_consistency import found_about
from tests.userflow.sessions.clients import own_token
from tests.world import Api, TestTenant, build_tenant, capture_statements, sign_in_admin
from userflow.accounts.models import EndUser


@pytest.fixture
def home(django_db_setup: None) -> Iterator[TestTenant]:
    """A tenant of its own, deleted after the test."""
    tenant = build_tenant("restored")
    yield tenant
    throw_away(tenant.row)


@dataclass
class Scene:
    """A tenant with every kind of authority, each twice: `lost` is revoked after the backup, `kept` is not."""

    tenant: TestTenant
    lost: list[Authority] = field(default_factory=list)
    kept: list[Authority] = field(default_factory=list)

    @classmethod
    def of(cls, tenant: TestTenant) -> "Scene":
        return cls(tenant, [kind(tenant) for kind in authority.KINDS], [kind(tenant) for kind in authority.KINDS])

    def revoke(self) -> None:
        for one in self.lost:
            assert one.works(), type(one).__name__
            one.revoke()
            assert not one.works(), type(one).__name__

    def working(self, some: list[Authority]) -> list[str]:
        """Return the kinds that work, for an admin who signs in again."""
        self.tenant.api.token = sign_in_admin(self.tenant.admin.username)["access_token"]
        return [type(one).__name__ for one in some if one.works()]

    def check(self) -> None:
        assert self.working(self.lost) == []
        # The lost key was the only one, so its kind has no honest counterpart here.
        assert self.working(self.kept) == [type(one).__name__ for one in self.kept if one.survives]


def test_restore_brings_no_authority_back(home: TestTenant, other_tenant: TestTenant, tmp_path: Path) -> None:
    scene, file, other = Scene.of(home), tmp_path / "home.backup", other_tenant.register()
    run_command("backup_tenant", home.slug, str(file))
    scene.revoke()
    run_command("restore_tenant", home.slug, str(file), yes=True)
    scene.check()
    # What a second restore brings back is revoked again.
    run_command("restore_tenant", home.slug, str(file), yes=True)
    scene.check()
    assert other_tenant.sign_in(other)["access_token"]


def test_undelete_brings_no_authority_back(home: TestTenant, settings: Any, tmp_path: Path) -> None:
    settings.DELETED_TENANT_BACKUP_DAYS, settings.BACKUP_FOLDER = 7, tmp_path / "backups"
    scene, file, slug = Scene.of(home), settings.BACKUP_FOLDER / f"deleted-{home.id}.backup", home.slug
    run_command("delete_tenant", slug, yes=True)
    copy = file.read_bytes()
    run_command("restore_deleted_tenant", str(file))
    run_command("resume_tenant", slug)
    home.api.token = sign_in_admin(home.admin.username)["access_token"]
    for withdrawn in scene.lost:
        if isinstance(withdrawn, authority.SigningKey):
            # The restore has ended the token of the client.
            withdrawn.token = own_token(withdrawn.client)
    scene.revoke()
    run_command("delete_tenant", slug, yes=True)
    newest = file.read_bytes()
    file.write_bytes(copy)
    # The journal does not have what was revoked in the global database: admins, secrets of clients, redirect URIs.
    with pytest.raises(CommandError, match="not the final backup of the last deletion"):
        run_command("restore_deleted_tenant", str(file))
    file.write_bytes(newest)
    run_command("restore_deleted_tenant", str(file))
    run_command("resume_tenant", slug)
    scene.check()


def test_move_brings_no_authority_back(home: TestTenant, second: DatabaseServer) -> None:
    scene = Scene.of(home)
    scene.revoke()
    run_command("move_tenant", home.slug, second.name, offline=True)
    scene.check()


def test_revocation_just_before_the_restore_counts(home: TestTenant, tmp_path: Path) -> None:
    person, file = authority.ActiveUser(home), tmp_path / "home.backup"
    run_command("backup_tenant", home.slug, str(file))
    # By a process that ends before it has delivered anything.
    with connect_to(home.row) as raw:
        raw.execute("UPDATE userflow_enduser SET active = false WHERE id = %s", [person.user.id])
    assert not JournaledRevocation.objects.filter(tenant_id=home.id).exists()
    run_command("restore_tenant", home.slug, str(file), yes=True)
    assert not person.works()


def test_authority_granted_again_before_the_backup_is_restored(home: TestTenant, tmp_path: Path) -> None:
    person, role, file = authority.ActiveUser(home), authority.RoleOfUser(home), tmp_path / "home.backup"
    permission, group_role = authority.PermissionOfRole(home), authority.RoleOfGroup(home)
    for one in (person, role, permission, group_role):
        one.revoke()
        one.grant_again()
    run_command("backup_tenant", home.slug, str(file))
    run_command("restore_tenant", home.slug, str(file), yes=True)
    home.api.token = sign_in_admin(home.admin.username)["access_token"]
    assert (person.works(), role.works(), permission.works(), group_role.works()) == (True, True, True, True)


def test_password_hashed_again_is_the_same_password(home: TestTenant, tmp_path: Path) -> None:
    person, file = home.register(), tmp_path / "home.backup"
    run_command("backup_tenant", home.slug, str(file))
    with in_tenant(home.id):
        # As a sign-in does after the parameters of the hash have changed.
        stored = EndUser.objects.get(pk=person.id).password
        EndUser.objects.filter(pk=person.id).update(password=stored + "=")
    run_command("restore_tenant", home.slug, str(file), yes=True)
    assert home.sign_in(person)["access_token"]


def test_user_with_replaced_password_sets_a_new_one(home: TestTenant, tmp_path: Path) -> None:
    person, file = authority.Password(home), tmp_path / "home.backup"
    run_command("backup_tenant", home.slug, str(file))
    person.revoke()
    run_command("restore_tenant", home.slug, str(file), yes=True)
    assert (person.works(), person.signs_in(person.new)) == (False, False)
    person.reset("a third horse 9 battery")
    assert person.signs_in("a third horse 9 battery")


def test_user_of_replaced_factor_needs_the_mailbox(home: TestTenant, tmp_path: Path) -> None:
    replaced, removed, file = (
        authority.ReplacedAuthenticator(home),
        authority.Authenticator(home),
        tmp_path / "home.backup",
    )
    run_command("backup_tenant", home.slug, str(file))
    replaced.revoke()
    removed.revoke()
    run_command("restore_tenant", home.slug, str(file), yes=True)
    # The new factor is lost; a thief of the password is not let in without it. Who has removed the factor goes on without.
    body = {"client_id": str(home.client_id), "password": authority.PASSWORD}
    attempts = [
        Api().post("/uflow/auth/enduser/login", {**body, "email": user.person.email}).status_code
        for user in (replaced, removed)
    ]
    assert attempts == [401, 200]


def test_user_of_replaced_address_waits_for_an_admin(home: TestTenant, tmp_path: Path) -> None:
    person, file = authority.Address(home), tmp_path / "home.backup"
    run_command("backup_tenant", home.slug, str(file))
    person.revoke()
    run_command("restore_tenant", home.slug, str(file), yes=True)
    assert not person.works()
    path = f"/uflow/user/enduser/{home.id}/{person.user.id}"
    assert home.api.put(path, {"email": f"admins-choice-{secrets.token_hex(4)}@example.com"}).status_code == 200
    body = {"tenant_id": str(home.id), "user_id": str(person.user.id), "active": True}
    assert home.api.post("/uflow/admin/enduser/active", body).status_code == 200
    assert "revoked authority" not in found_about(home)


def test_password_hashed_again_and_then_replaced_stays_replaced(home: TestTenant, tmp_path: Path) -> None:
    person, file = authority.Password(home), tmp_path / "home.backup"
    stored = PBKDF2PasswordHasher().encode(authority.PASSWORD, "saltsaltsaltsaltsaltsa", 1000)
    with in_tenant(home.id):
        # As an import stores it.
        EndUser.objects.filter(pk=person.user.id).update(password=stored)
    run_command("backup_tenant", home.slug, str(file))
    assert person.works()
    with in_tenant(home.id):
        assert EndUser.objects.get(pk=person.user.id).password != stored
    person.revoke()
    run_command("restore_tenant", home.slug, str(file), yes=True)
    assert not person.works()


def test_factor_older_than_the_journal_leaves_no_password_alone(home: TestTenant, tmp_path: Path) -> None:
    replaced, removed = authority.ReplacedAuthenticator(home), authority.Authenticator(home)
    file = tmp_path / "home.backup"
    # As after an upgrade from a release without the journal.
    JournaledRevocation.objects.filter(tenant_id=home.id).delete()
    run_command("backup_tenant", home.slug, str(file))
    replaced.revoke()
    removed.revoke()
    run_command("restore_tenant", home.slug, str(file), yes=True)
    # The second user has removed the factor, and went on with the password alone.
    assert [_signs_in(home, one, authority.PASSWORD) for one in (replaced, removed)] == [False, True]
    assert _numbers_of_restore(home)["password alone"] == 1


def test_restored_older_backup_grants_nothing_to_a_newer_one(home: TestTenant, tmp_path: Path) -> None:
    person, older, newer = authority.ReplacedAuthenticator(home), tmp_path / "older.backup", tmp_path / "newer.backup"
    run_command("backup_tenant", home.slug, str(older))
    token = person.token()
    body = {"backup_code": person.person.backup_codes.pop(), "new_password": authority.NEW_PASSWORD}
    assert Api(token=token).post("/authmgr/profile/password", body).status_code == 200
    run_command("backup_tenant", home.slug, str(newer))
    with in_tenant(home.id):
        user = EndUser.objects.get(pk=person.person.id)
        user.totp_secrets.all().delete()
    run_command("restore_tenant", home.slug, str(older), yes=True)
    # What the first restore has removed was not removed by the user.
    run_command("restore_tenant", home.slug, str(newer), yes=True)
    assert not _signs_in(home, person, authority.NEW_PASSWORD)


@pytest.mark.parametrize("number", [1, 4])
def test_removing_factors_again_costs_the_same_for_many_users(home: TestTenant, number: int) -> None:
    with in_tenant(home.id), transaction.atomic(using=TENANT_ALIAS):
        addresses = [f"{n}@example.com" for n in range(number)]
        stored: dict[str, Any] = {"password": "hash", "mfa_methods": ["totp"]}
        users = [EndUser.objects.create(email=email, email_key=email, **stored) for email in addresses]
        factors = [
            EndUserTotpSecret.objects.create(user=user, secret_sealed=b"", expires_at=now(), confirmed_at=now())
            for user in users
        ]
        matches = [RestoredRow(home.id, factor.pk, str(factor.pk), now()) for factor in factors]
        keys.platform_key()  # a process reads it once
        with capture_statements() as made:
            EndUserTotpSecret.remove_again(matches)
        assert not EndUser.objects.exclude(mfa_methods=[], password="").exists()
    assert made.counts == (1, 10)


def _signs_in(tenant: TestTenant, user: authority.Authenticator, password: str) -> bool:
    body = {"client_id": str(tenant.client_id), "email": user.person.email, "password": password}
    return bool(Api().post("/uflow/auth/enduser/login", body).status_code == 200)


def _numbers_of_restore(tenant: TestTenant) -> dict[str, int]:
    event = PlatformEvent.objects.filter(action="tenant.restored", tenant_id=tenant.id).latest("id")
    numbers: dict[str, int] = event.details["revoked"]
    return numbers


# --- point-in-time recovery ------------------------------------------------------------------------------------------


def test_check_consistency_revokes_again(home: TestTenant, tmp_path: Path) -> None:
    person, kept = authority.ActiveUser(home), home.register()
    token = home.as_user(kept)
    person.revoke()
    assert "revoked authority" not in found_about(home)
    with connect_to(home.row) as raw:
        # As after point-in-time recovery: no trigger runs.
        raw.execute("SET session_replication_role = replica")
        raw.execute("UPDATE userflow_enduser SET active = true WHERE id = %s", [person.user.id])
    assert person.works()
    assert found_about(home)["revoked authority"] == 1
    with pytest.raises(SystemExit):
        run_command("check_consistency", tenant=[home.slug], repair=True, yes=True)
    assert not person.works()
    assert "revoked authority" not in found_about(home)
    # Sessions may have been ended since that moment too.
    assert token.get("/authmgr/validate").status_code == 401
    assert home.sign_in(kept)["access_token"]


# --- the journal -----------------------------------------------------------------------------------------------------


def test_revocations_wait_for_the_global_database(home: TestTenant) -> None:
    person = authority.ActiveUser(home)
    with locked_journal():
        person.revoke()
    assert waiting(home) == 1
    assert deliveries.deliver_all(tenants=[home.id]) == []
    assert (waiting(home), journaled(home)) == (0, ["deactivated user"])


def test_transaction_that_began_first_revokes_last(home: TestTenant) -> None:
    person = home.register()
    update = "UPDATE userflow_enduser SET active = %s WHERE id = %s"
    with connect_to(home.row) as earlier, connect_to(home.row) as later:
        earlier.autocommit = False
        earlier.execute("SELECT now()")
        for active in (False, True):
            later.execute(update, [active, person.id])
        assert deliveries.deliver_all(tenants=[home.id]) == []
        earlier.execute(update, [False, person.id])
        earlier.commit()
    assert deliveries.deliver_all(tenants=[home.id]) == []
    revoked = JournaledRevocation.objects.filter(tenant_id=home.id, kind="deactivated user")
    assert list(revoked.values_list("revoked", flat=True)) == [True]


def test_journal_has_no_personal_data(home: TestTenant) -> None:
    person = authority.Address(home)
    person.revoke()
    assert deliveries.deliver_all(tenants=[home.id]) == []
    (row, *_) = JournaledRevocation.objects.filter(tenant_id=home.id, kind="replaced address", revoked=True)
    with connect_to(home.row) as raw:
        text = f"{person.user.id} {person.user.email}"
        (plain,) = raw.execute("SELECT sha256(convert_to(%s, 'UTF8'))", [text]).fetchone() or (b"",)
    assert bytes(row.digest) != bytes(plain)


def test_sign_in_refresh_and_logout_journal_nothing(home: TestTenant) -> None:
    person = home.register()
    before = journaled(home)
    signed_in = home.sign_in(person)
    refresh = {"grant_type": "refresh_token", "refresh_token": signed_in["refresh_token"]}
    assert Api().post("/authmgr/token", refresh).status_code == 200
    assert Api(token=signed_in["access_token"]).post("/authmgr/logout", {"all": True}).status_code == 200
    assert (journaled(home), waiting(home)) == (before, 0)


def test_purge_keeps_entries_while_a_backup_opens(home: TestTenant, settings: Any, tmp_path: Path) -> None:
    authority.ActiveUser(home).revoke()
    retention.purge(audit_trails.THE_PLATFORM)
    assert journaled(home) == ["deactivated user"]
    run_command("delete_tenant", home.slug, yes=True)
    retention.purge(audit_trails.THE_PLATFORM)
    # Without the data key no backup of the tenant opens.
    assert journaled(home) == []


def test_backup_older_than_the_journal_is_rejected(home: TestTenant, settings: Any, tmp_path: Path) -> None:
    file = tmp_path / "home.backup"
    run_command("backup_tenant", home.slug, str(file))
    settings.REVOCATION_JOURNAL_DAYS = 30
    run_command("restore_tenant", home.slug, str(file), yes=True)
    settings.REVOCATION_JOURNAL_DAYS = 1e-6  # less than the age of the backup
    with pytest.raises(CommandError, match="REVOCATION_JOURNAL_DAYS"):
        run_command("restore_tenant", home.slug, str(file), yes=True)


@contextmanager
def locked_journal() -> Iterator[None]:
    """Let every statement on the journal wait until it is cancelled."""
    with psycopg.connect(**connection.get_connection_params()) as raw:
        raw.execute("LOCK TABLE tenants_journaledrevocation IN ACCESS EXCLUSIVE MODE")
        yield
        # As at the start of the next request.
        close_old_connections()


def waiting(tenant: TestTenant) -> int:
    with in_tenant(tenant.id):
        return UndeliveredRevocation.objects.count()


def journaled(tenant: TestTenant) -> list[str]:
    rows = JournaledRevocation.objects.filter(tenant_id=tenant.id).order_by("kind")
    return list(rows.values_list("kind", flat=True))
