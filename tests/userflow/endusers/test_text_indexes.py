"""Indexes for text inside addresses and names: created by command, by size, and not where the server lacks the extension.

The embedded server lacks it, Debian's has it: .ci/run tests both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from psycopg import sql
from psycopg.errors import UniqueViolation

from tenants.copies import databases, dumps
from tenants.database_servers import servers
from tenants.database_servers.queries import connection_to
from tenants.models import TenantDatabase
from tests.tenants.conftest import run_command
from tests.world import TestTenant
from userflow.endusers.text_indexes import LARGE, Outcome, Result, index_text_search
from userflow.user_index.models import IndexedEndUser

GET = "/uflow/user/enduser/list"
BOTH = ["end_user_email_trigram", "end_user_name_trigram"]
VALID = (
    "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
    " WHERE c.relname LIKE '%_trigram' AND i.indisvalid ORDER BY 1"
)
MISSING = "the server has no pg_trgm (Debian: part of postgresql)"


def mapping_of(tenant: TestTenant) -> TenantDatabase:
    return TenantDatabase.objects.select_related("server").get(pk=tenant.id)


def indexes(mapping: TenantDatabase, database: str = "") -> list[str]:
    with connection_to(mapping.server, database or mapping.name) as raw:
        return [name for (name,) in raw.execute(VALID).fetchall()]


def searched(tenant: TestTenant, **query: Any) -> list[str]:
    found = tenant.api.get(GET, {"tenant_id": str(tenant.id), "limit": 100, **query}).json()
    assert found["total"] == len(found["users"])
    return [user["email"] for user in found["users"]]


def server_has_extension(mapping: TenantDatabase) -> bool:
    with connection_to(mapping.server, mapping.name) as raw:
        return dumps.has_extension(raw)


@contextmanager
def new_database(mapping: TenantDatabase, name: str) -> Iterator[str]:
    with servers.maintenance(mapping.server) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        try:
            yield name
        finally:
            databases.drop(raw, name)


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
    if server_has_extension(mapping_of(own)):
        assert "1 indexed, 0 had indexes, 0 without." in run_command("index_text_search", tenant=[own.slug])
        assert indexes(mapping_of(own)) == BOTH
        assert "0 indexed, 1 had indexes, 0 without." in run_command("index_text_search", tenant=[own.slug])
    else:
        with pytest.raises(SystemExit, match="1"):
            run_command("index_text_search", tenant=[own.slug])
        assert index_text_search(only=[own.slug]) == [Outcome(own.slug, Result.UNAVAILABLE, MISSING)]
        assert indexes(mapping_of(own)) == []
    assert [searched(own, **query) for query in queries] == before
    assert [len(found) for found in before] == [5, 1, 1, 5, 0]


def test_index_of_a_killed_command_is_created_again(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    mapping = mapping_of(own)
    for name in ("one", "two"):
        own.register(f"{name}@{own.slug}.example.com", name="Same Name")
    with connection_to(mapping.server, mapping.name) as raw, pytest.raises(UniqueViolation):
        # What remains of this one is not valid, as of one whose command was killed.
        raw.execute("CREATE UNIQUE INDEX CONCURRENTLY end_user_name_trigram ON userflow_enduser (name)")
    [outcome] = index_text_search(only=[own.slug])
    there = server_has_extension(mapping)
    assert outcome.result is (Result.CREATED if there else Result.UNAVAILABLE)
    assert indexes(mapping) == (BOTH if there else [])


def test_missing_permission_is_named(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    mapping = mapping_of(own)
    with connection_to(mapping.server, mapping.name) as raw:
        # The owner of a database creates trusted extensions with this privilege. A superuser needs none.
        raw.execute(sql.SQL("REVOKE CREATE ON DATABASE {} FROM CURRENT_USER").format(sql.Identifier(mapping.name)))
        [(superuser,)] = raw.execute("SELECT usesuper FROM pg_user WHERE usename = current_user").fetchall()
    [outcome] = index_text_search(only=[own.slug])
    if not server_has_extension(mapping):
        assert outcome.reason == MISSING
    elif not superuser:
        assert outcome.result is Result.UNAVAILABLE
        assert f"CREATE EXTENSION pg_trgm in {mapping.name}" in outcome.reason
    else:
        assert outcome.result is Result.CREATED


def test_large_tenants_are_indexed_unasked(new_tenant: Callable[[], TestTenant]) -> None:
    small, large = new_tenant(), new_tenant()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO userflow_indexedenduser (tenant_id, user_id, digest)"
            " SELECT %s, gen_random_uuid(), '' FROM generate_series(1, %s)",
            [large.id, LARGE],
        )
    try:
        outcomes = {outcome.slug: outcome.result for outcome in index_text_search()}
    finally:
        IndexedEndUser.objects.filter(tenant_id=large.id).delete()
    assert outcomes[large.slug] is (Result.CREATED if server_has_extension(mapping_of(large)) else Result.UNAVAILABLE)
    assert small.slug not in outcomes


def test_command_rejects_unknown_slug_of_search() -> None:
    with pytest.raises(Exception, match="No active tenant"):
        run_command("index_text_search", tenant=["no-such-tenant"])


def test_restore_leaves_indexes_out_without_extension(new_tenant: Callable[[], TestTenant], tmp_path: Path) -> None:
    own = new_tenant()
    own.register(f"kept@{own.slug}.example.com")
    mapping = mapping_of(own)
    there = server_has_extension(mapping)
    index_text_search(only=[own.slug])
    if not there:
        # As in the file of a server that has it. It is the names that the restoring server goes by.
        with connection_to(mapping.server, mapping.name) as raw:
            for name in BOTH:
                raw.execute(sql.SQL("CREATE INDEX {} ON userflow_enduser (name)").format(sql.Identifier(name)))
    assert indexes(mapping) == BOTH
    dump = tmp_path / "dump"
    dumps.write_out(mapping.server, mapping.name, dump)
    with new_database(mapping, f"{mapping.name}_copy") as copy:
        dumps.read_in(mapping.server, copy, dump)
        assert indexes(mapping, copy) == (BOTH if there else [])
        assert rows_of(mapping, copy) == rows_of(mapping, mapping.name)


def rows_of(mapping: TenantDatabase, database: str) -> dict[str, int]:
    with connection_to(mapping.server, database) as raw:
        return databases.row_counts(raw)
