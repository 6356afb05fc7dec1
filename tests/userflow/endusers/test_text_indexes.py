"""Indexes for text inside addresses and names: created by command, by size, and not where the server lacks the extension."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from psycopg import sql

from tenants import databases, dumps, servers
from tenants.context import in_tenant
from tenants.models import TenantDatabase
from tests.tenants.conftest import run_command
from tests.world import TestTenant
from userflow.endusers.text_indexes import LARGE, Result, index_text_search
from userflow.user_index.models import IndexedEndUser

GET = "/uflow/user/enduser/list"
BOTH = ["end_user_email_trigram", "end_user_name_trigram"]
VALID = (
    "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
    " WHERE c.relname LIKE '%_trigram' AND i.indisvalid ORDER BY 1"
)
# PostgreSQL looks for extensions there (from version 18 on).
HIDE = "ALTER DATABASE {} SET extension_control_path = '/nowhere'"


def mapping_of(tenant: TestTenant) -> TenantDatabase:
    return TenantDatabase.objects.select_related("server").get(pk=tenant.id)


def indexes(mapping: TenantDatabase, database: str = "") -> list[str]:
    with databases.connection_to(mapping.server, database or mapping.name) as raw:
        return [name for (name,) in raw.execute(VALID).fetchall()]


def searched(tenant: TestTenant, **query: Any) -> list[str]:
    found = tenant.api.get(GET, {"tenant_id": str(tenant.id), "limit": 100, **query}).json()
    assert found["total"] == len(found["users"])
    return [user["email"] for user in found["users"]]


def hide_extension(mapping: TenantDatabase, database: str = "") -> None:
    with servers.maintenance(mapping.server) as raw:
        raw.execute(sql.SQL(HIDE).format(sql.Identifier(database or mapping.name)))


@contextmanager
def new_database(mapping: TenantDatabase, name: str) -> Iterator[str]:
    identifier = sql.Identifier(name)
    with servers.maintenance(mapping.server) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(identifier))
        try:
            yield name
        finally:
            raw.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))


def test_command_creates_indexes_and_search_finds_the_same(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    for number in range(5):
        own.register(f"reader{number}_x%{own.slug}@example.com", name=f"Émile {number}% Doe")
    queries: list[dict[str, str]] = [
        {"email": "READER"},
        {"email": "3_x%"},
        {"name": "émile 3"},
        {"name": "e"},
        {"email": "zzz"},
    ]
    before = [searched(own, **query) for query in queries]
    assert "1 indexed, 0 had indexes, 0 without." in run_command("index_text_search", tenant=[own.slug])
    assert indexes(mapping_of(own)) == BOTH
    assert [searched(own, **query) for query in queries] == before
    assert [len(found) for found in before] == [5, 1, 1, 5, 0]
    assert "0 indexed, 1 had indexes, 0 without." in run_command("index_text_search", tenant=[own.slug])


def test_index_of_a_killed_command_is_created_again(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    index_text_search(only=[own.slug])
    with in_tenant(own.id), connections["tenant"].cursor() as cursor:
        cursor.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'end_user_name_trigram'::regclass")
    [outcome] = index_text_search(only=[own.slug])
    assert outcome.result is Result.CREATED
    assert indexes(mapping_of(own)) == BOTH


def test_server_without_extension_is_named(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    own.register(f"alone@{own.slug}.example.com")
    hide_extension(mapping_of(own))
    [outcome] = index_text_search(only=[own.slug])
    assert outcome.result is Result.UNAVAILABLE
    assert "no pg_trgm" in outcome.reason
    assert searched(own, email="alone@") == [f"alone@{own.slug}.example.com"]
    with pytest.raises(SystemExit, match="1"):
        run_command("index_text_search", tenant=[own.slug])


def test_missing_permission_is_named(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    mapping = mapping_of(own)
    role, database = sql.Identifier(f"limited_{mapping.name}"), sql.Identifier(mapping.name)
    with servers.maintenance(mapping.server) as raw:
        raw.execute(sql.SQL("CREATE ROLE {}").format(role))
        # Every connection to the database takes this role.
        raw.execute(sql.SQL("ALTER DATABASE {} SET role = {}").format(database, role))
        try:
            [outcome] = index_text_search(only=[own.slug])
        finally:
            raw.execute(sql.SQL("ALTER DATABASE {} RESET role").format(database))
            raw.execute(sql.SQL("DROP ROLE {}").format(role))
    assert outcome.result is Result.UNAVAILABLE
    assert f"CREATE EXTENSION pg_trgm in {mapping.name}" in outcome.reason


def test_large_tenants_are_indexed_unasked(new_tenant: Callable[[], TestTenant]) -> None:
    small, large = new_tenant(), new_tenant()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO userflow_indexedenduser (tenant_id, user_id, digest)"
            " SELECT %s, gen_random_uuid(), '' FROM generate_series(1, %s)",
            [large.id, LARGE],
        )
    try:
        outcomes = index_text_search()
    finally:
        IndexedEndUser.objects.filter(tenant_id=large.id).delete()
    assert large.slug in [outcome.slug for outcome in outcomes if outcome.result is Result.CREATED]
    assert small.slug not in [outcome.slug for outcome in outcomes]


def test_command_rejects_unknown_slug_of_search() -> None:
    with pytest.raises(Exception, match="No active tenant"):
        run_command("index_text_search", tenant=["no-such-tenant"])


def test_restore_leaves_indexes_out_without_extension(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    own = new_tenant()
    index_text_search(only=[own.slug])
    mapping = mapping_of(own)
    dump = tmp_path / "dump"
    dumps.write_out(mapping.server, mapping.name, dump)
    rows = rows_of(mapping, mapping.name)
    for hidden, expected in ((True, []), (False, BOTH)):
        with new_database(mapping, f"{mapping.name}_{hidden}".lower()) as copy:
            if hidden:
                hide_extension(mapping, copy)
            dumps.read_in(mapping.server, copy, dump)
            assert indexes(mapping, copy) == expected
            assert rows_of(mapping, copy) == rows


def rows_of(mapping: TenantDatabase, database: str) -> dict[str, int]:
    with databases.connection_to(mapping.server, database) as raw:
        return databases.row_counts(raw)
