"""Tenant databases are upgraded with the statements of the first one, if they are equal to it."""

import subprocess
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connections, migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.operations.base import Operation
from psycopg.conninfo import make_conninfo

from identity_platform.serving.embedded.postgres import identity_of_postgres, programs_of_postgres
from tenants.database_servers import servers
from tenants.entering import schema
from tenants.entering.recorded_upgrades import Applied, Recording, Statement, is_repeatable
from tenants.entering.target import TENANT_ALIAS, DatabaseTarget, in_target
from tenants.errors import UpgradeFailed
from tenants.models import Tenant, TenantDatabase
from tests.tenants.conftest import connect_to

# Migrations with columns, defaults and partial indexes after these.
BEFORE = [("userflow", "0026_end_sessions_without_consent"), ("mfa", "0006_passkey_names_of_end_users")]
LATER = {"userflow.0027_language_of_end_users", "userflow.0028_kept_responses_of_refresh_tokens"}
Recordings = dict[Applied, Recording]


def target_of(tenant: Tenant) -> DatabaseTarget:
    mapping = TenantDatabase.objects.select_related("server").get(pk=tenant.pk)
    return DatabaseTarget.for_maintenance(mapping.server, mapping.name)


def turn_back(tenant: Tenant) -> None:
    """Undo the newest migrations of a tenant."""
    with in_target(target_of(tenant)):
        connection = connections[TENANT_ALIAS]
        connection.ensure_connection()
        MigrationExecutor(connection).migrate(BEFORE)


@pytest.fixture
def older(new_bare_tenant: Callable[[], Tenant]) -> Callable[[], Tenant]:
    """Create a tenant with an older schema."""

    def make() -> Tenant:
        tenant = new_bare_tenant()
        turn_back(tenant)
        return tenant

    return make


def dumped(tenant: Tenant) -> str:
    """Return the statements that would create the tenant's schema."""
    mapping = TenantDatabase.objects.select_related("server").get(pk=tenant.pk)
    url = make_conninfo(
        **servers.parameters(mapping.server_id, mapping.server.revision, direct=True), dbname=mapping.name
    )
    program = programs_of_postgres(*identity_of_postgres()) / "pg_dump"
    done = subprocess.run([program, "--schema-only", url], capture_output=True, text=True, check=True)
    # These lines are random.
    return "\n".join(line for line in done.stdout.splitlines() if not line.startswith(("\\restrict", "\\unrestrict")))


def columns(tenant: Tenant) -> set[str]:
    with connect_to(tenant) as raw:
        found = raw.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'userflow_enduser'::regclass").fetchall()
    return {name for (name,) in found}


def test_repeated_statements_make_the_same_schema(older: Callable[[], Tenant]) -> None:
    recordings: Recordings = {}
    first, second = older(), older()
    assert set(schema.upgrade(target_of(first), recordings)) >= LATER
    (recording,) = recordings.values()
    assert recording.statements
    # Only there if the statements are repeated.
    recording.statements.append(Statement("a.0001", "CREATE TABLE repeated (x int)", None, None))
    assert set(schema.upgrade(target_of(second), recordings)) >= LATER
    with connect_to(second) as raw:
        raw.execute("DROP TABLE repeated")
    assert dumped(second) == dumped(first)
    assert schema.is_current(target_of(second))


def test_times_of_repeated_migrations_are_their_own(older: Callable[[], Tenant]) -> None:
    recordings: Recordings = {}
    first, second = older(), older()
    asked = "SELECT min(applied), max(applied) FROM django_migrations WHERE name = '0027_language_of_end_users'"
    schema.upgrade(target_of(first), recordings)
    with connect_to(first) as raw:
        ((before, _),) = raw.execute(asked).fetchall()
    schema.upgrade(target_of(second), recordings)
    with connect_to(second) as raw:
        ((earliest, latest),) = raw.execute(asked).fetchall()
    assert earliest == latest
    assert timedelta() < latest - before < timedelta(minutes=5)


def test_database_with_other_migrations_is_planned(older: Callable[[], Tenant]) -> None:
    recordings: Recordings = {}
    schema.upgrade(target_of(older()), recordings)
    other = older()
    schema.upgrade(target_of(other), {})
    with in_target(target_of(other)):
        connection = connections[TENANT_ALIAS]
        connection.ensure_connection()
        MigrationExecutor(connection).migrate(BEFORE[:1])
    ran = schema.upgrade(target_of(other), recordings)
    assert set(ran) >= LATER
    assert not any(name.startswith("mfa.") for name in ran)
    assert len(recordings) == 2


def test_database_that_answers_otherwise_is_planned(older: Callable[[], Tenant]) -> None:
    recordings: Recordings = {}
    schema.upgrade(target_of(older()), recordings)
    (recording,) = recordings.values()
    recording.statements += [
        Statement("a.0001", "CREATE TABLE repeated (x int)", None, None),
        Statement("a.0001", "SELECT current_database()", None, (("another",),)),
    ]
    tenant = older()
    assert set(schema.upgrade(target_of(tenant), recordings)) >= LATER
    assert "language" in columns(tenant)
    with connect_to(tenant) as raw:
        assert raw.execute("SELECT to_regclass('repeated')").fetchone() == (None,)


def test_failed_repetition_names_the_migration_and_changes_nothing(older: Callable[[], Tenant]) -> None:
    recordings: Recordings = {}
    schema.upgrade(target_of(older()), recordings)
    tenant = older()
    with connect_to(tenant) as raw:
        raw.execute("CREATE INDEX adminrefreshtoken_kept ON userflow_enduser (id)")
        raw.execute("CREATE INDEX enduserrefreshtoken_kept ON userflow_enduser (id)")
    with pytest.raises(UpgradeFailed, match=r"^userflow\.0028_kept_responses_of_refresh_tokens: DuplicateTable"):
        schema.upgrade(target_of(tenant), recordings)
    assert "language" not in columns(tenant)


def test_queries_are_compared(new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    recording = Recording()
    with in_target(target_of(tenant)):
        connection = connections[TENANT_ALIAS]
        with recording.of(connection, lambda: "a.0001"), connection.cursor() as cursor:
            cursor.execute("SELECT 1 UNION SELECT %s ORDER BY 1", [2])
            assert cursor.fetchall() == [(1,), (2,)]
            cursor.execute("SET statement_timeout = 0")
    assert [statement.rows for statement in recording.statements] == [((1,), (2,)), None]


@pytest.mark.parametrize(
    ("operation", "repeatable"),
    [
        (migrations.AddField("group", "colour", models.TextField()), True),
        (migrations.AddField("group", "names", models.JSONField(default=list)), True),
        # All databases would get one key, or one time.
        (migrations.AddField("group", "key", models.UUIDField(default=uuid4)), False),
        (migrations.AlterField("group", "since", models.DateTimeField(auto_now_add=True)), False),
        (migrations.RunSQL("SELECT 1"), True),
        # Statements about this table are not recorded.
        (migrations.RunSQL("DELETE FROM \"django_migrations\" WHERE app = 'gone'"), False),
        (migrations.RunPython(migrations.RunPython.noop, hints={"tenant": True}), False),
        # It runs in the global database only.
        (migrations.RunPython(migrations.RunPython.noop, hints={"tenant": False}), True),
        (
            migrations.SeparateDatabaseAndState(
                [migrations.RunPython(migrations.RunPython.noop, hints={"tenant": True})]
            ),
            False,
        ),
    ],
)
def test_only_migrations_without_code_are_repeated(
    operation: Operation, repeatable: bool, new_bare_tenant: Callable[[], Tenant]
) -> None:
    migration = migrations.Migration("0001", "userflow")
    migration.operations = [operation]
    with in_target(target_of(new_bare_tenant())):
        assert is_repeatable(migration) is repeatable


def test_squashed_migrations_are_not_repeated() -> None:
    migration = migrations.Migration("0002_squashed", "userflow")
    migration.replaces = [("userflow", "0002_old")]
    assert not is_repeatable(migration)
