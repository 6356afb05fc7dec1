"""A global database that was restored or copied uses no database server until an operator adopts or detaches it."""

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import cast
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tenants.copies import databases
from tenants.database_servers import fence_counters, fences, marks, servers
from tenants.database_servers.fences import ServerMark
from tenants.errors import InstallationFenced
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, Tenant
from tests.tenants.conftest import AnotherProcess, Ended

ROWS = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"


def admin_connection(database: str | None = None) -> "psycopg.Connection[tuple[object, ...]]":
    admin = settings.DATABASE_ADMIN
    known = {n: admin[k] for n, k in (("user", "USER"), ("password", "PASSWORD"), ("host", "HOST"), ("port", "PORT"))}
    text = make_conninfo(
        dbname=database or admin["NAME"], **{name: str(value) for name, value in known.items() if value}
    )
    return psycopg.connect(text, autocommit=True)


@dataclass(frozen=True)
class Copy:
    """One global database of an installation, and the process whose commands use it."""

    process: AnotherProcess
    database: str
    prefix: str

    def run(self, *command: str) -> Ended:
        return self.process.run(*command, database=self.database, prefix=self.prefix)

    def get(self, path: str) -> tuple[int, str]:
        return self.process.get(path, database=self.database, prefix=self.prefix)


class Platform(Copy):
    """An installation with a global database of its own, on the servers of this run."""

    @property
    def copy(self) -> str:
        return f"copy_{self.database}"

    def create(self, slug: str, *options: str) -> dict[str, object]:
        """Create a tenant; return what `create_tenant --json` prints."""
        ended = self.run("create_tenant", slug, "--slug", slug, "--json", *options)
        assert ended.code == 0, ended.said
        made: dict[str, object] = json.loads(ended.said)
        return made

    def database_of(self, slug: str) -> str:
        with admin_connection(self.database) as raw:
            query = "SELECT d.name FROM tenants_tenantdatabase d JOIN tenants_tenant t ON t.id = d.tenant_id WHERE t.slug = %s"
            ((name,),) = raw.execute(query, [slug]).fetchall()
        return str(name)

    def copy_global(self) -> Copy:
        """Restore a dump of the global database beside it."""
        with admin_connection() as raw:
            copy_database(raw, self.database, self.copy)
        return Copy(self.process, self.copy, self.prefix)

    def saved(self) -> dict[str, bytes]:
        """Return the rows of every table of the global database."""
        with admin_connection(self.database) as raw:
            # The audit log rejects TRUNCATE.
            names = [name for (name,) in raw.execute(ROWS).fetchall() if not str(name).startswith("audit_")]
            rows = {}
            for name in names:
                with raw.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(str(name)))) as out:
                    rows[str(name)] = b"".join(bytes(part) for part in out)
            return rows

    def put_back(self, rows: dict[str, bytes]) -> None:
        """Bring the global database back to an earlier moment, as point-in-time recovery does: it stays the same database."""
        with admin_connection(self.database) as raw, raw.transaction():
            # In any order of the tables: foreign keys are checked at the end.
            raw.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(map(sql.Identifier, rows))))
            for name, text in rows.items():
                with raw.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(name))) as into:
                    into.write(text)

    def contents(self) -> dict[str, object]:
        """Return the databases of the installation on the server, each with the mark and a checksum of its rows."""
        found: dict[str, object] = {}
        with admin_connection() as raw:
            listed = "SELECT datname FROM pg_database WHERE starts_with(datname, %s) AND datallowconn"
            names = raw.execute(listed, [self.prefix]).fetchall()
        for (name,) in names:
            with admin_connection(str(name)) as raw:
                tables = [table for (table,) in raw.execute(ROWS).fetchall()]
                found[str(name)] = {
                    table: raw.execute(
                        sql.SQL("SELECT count(*), md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {} t").format(
                            sql.Identifier(str(table))
                        )
                    ).fetchall()
                    for table in tables
                }
        return found

    def end(self) -> None:
        with admin_connection() as raw:
            listed = "SELECT datname FROM pg_database WHERE starts_with(datname, %s)"
            for (name,) in raw.execute(listed, [self.prefix]).fetchall():
                databases.drop(raw, str(name))
            for name in (self.database, self.copy):
                databases.drop(raw, name)


@pytest.fixture(scope="module")
def seed(another_process: AnotherProcess) -> Iterator[str]:
    """A migrated global database that no installation has used: migrating one takes longer than the tests."""
    name, prefix = (f"s{secrets.token_hex(4)}{word}" for word in ("seed", "_"))
    with admin_connection() as raw:
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(name)))
        ended = another_process.run("migrate", "--database", "default", database=name, prefix=prefix)
        assert ended.code == 0, ended.said
        yield name
        databases.drop(raw, name)


@pytest.fixture
def platform(another_process: AnotherProcess, seed: str) -> Iterator[Platform]:
    """A prepared installation with a warm pool."""
    prefix = f"f{secrets.token_hex(4)}_"
    made = Platform(another_process, f"global_{prefix}", prefix)
    with admin_connection() as raw:
        copy_database(raw, seed, made.database)
        try:
            # The first command makes it an installation. Its template is a copy of this run's.
            assert made.run("list_tenants").code == 0
            assert made.run("migrate_tenants").code == 0
            bring_template(raw, made)
            ended = made.run("prepare", "--no-demo")
            assert ended.code == 0, ended.said
            yield made
        finally:
            made.end()


def copy_database(raw: "psycopg.Connection[tuple[object, ...]]", source: str, name: str) -> None:
    """Copy a database. A pooler keeps connections of processes that have ended, and a copy is made of none in use."""
    raw.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [source])
    raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(source)))


def bring_template(raw: "psycopg.Connection[tuple[object, ...]]", made: Platform) -> None:
    name = databases.template_name()
    own = made.prefix + name.removeprefix(str(settings.TENANT_DATABASE_PREFIX))
    copy_database(raw, name, own)
    with admin_connection(made.database) as its_global:
        ((installation,),) = its_global.execute("SELECT id FROM tenants_installation").fetchall()
    with admin_connection(own) as template:
        template.execute("UPDATE tenants_tenantrecord SET installation = %s", [installation])
    raw.execute(sql.SQL("ALTER DATABASE {} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false").format(sql.Identifier(own)))


def add_group(database: str) -> None:
    with admin_connection(database) as raw:
        raw.execute("INSERT INTO userflow_group VALUES (gen_random_uuid(), 'staff', '', now(), now())")


def test_fresh_installation_needs_no_step(platform: Platform) -> None:
    assert platform.get("/uflow/ready")[0] == 200
    platform.create("first")
    assert platform.run("check_tenants").said.endswith("No problems found.\n")


def test_restored_global_gives_no_tenant_anothers_database(platform: Platform) -> None:
    before = platform.saved()
    platform.create("since")
    taken = platform.database_of("since")
    add_group(taken)
    platform.put_back(before)
    # The restored global database lists it as a spare.
    refused = platform.run("create_tenant", "Next", "--slug", "next")
    assert (refused.code, "older than the database server main" in refused.said) == (2, True)
    assert platform.run("prepare", "--no-demo").code == 75
    plan = platform.run("adopt_installation", "--dry-run")
    assert f"main\t{taken}\tit is listed as a spare" in plan.said
    assert platform.get("/uflow/ready")[0] == 503
    adopted = platform.run("adopt_installation", "--yes")
    assert adopted.code == 0, adopted.said
    assert platform.get("/uflow/ready")[0] == 200
    platform.create("next")
    platform.create("another")
    assert taken not in (platform.database_of("next"), platform.database_of("another"))
    assert f"spare of a tenant\tmain\t{taken}" in platform.run("check_tenants").said
    # Not dropped with outdated spares, nor by a repair.
    platform.run("check_tenants", "--repair", "--yes")
    with admin_connection(taken) as raw:
        assert raw.execute("SELECT count(*) FROM userflow_group").fetchone() == (1,)


def test_spare_is_not_taken_if_it_is_not_empty(platform: Platform) -> None:
    with admin_connection(platform.database) as raw:
        spares = [str(name) for (name,) in raw.execute("SELECT name FROM tenants_warmdatabase ORDER BY id").fetchall()]
    assert len(spares) == 2
    add_group(spares[0])
    platform.create("careful")
    assert platform.database_of("careful") == spares[1]
    aside = platform.run("check_tenants").said
    assert f"spare of a tenant\tmain\t{spares[0]}\tset aside" in aside
    assert (
        f'find the tenant that it belongs to, or drop it by hand if you know that it is not needed: DROP DATABASE "{spares[0]}"'
        in aside
    )


def test_missing_spare_is_not_taken(platform: Platform) -> None:
    with admin_connection(platform.database) as raw:
        spares = [str(name) for (name,) in raw.execute("SELECT name FROM tenants_warmdatabase ORDER BY id").fetchall()]
    with admin_connection() as raw:
        databases.drop(raw, spares[0])
    platform.create("careful")
    assert platform.database_of("careful") == spares[1]
    assert platform.run("check_tenants", "--repair", "--yes").said.endswith("No problems found.\n")


def test_copy_serves_and_writes_nothing(platform: Platform) -> None:
    platform.create("acme")
    copy = platform.copy_global()
    before = platform.contents()
    for path in ("/uflow/ready", "/t/acme/jwks", "/t/acme/signin", "/admin/", "/uflow/auth/jwks"):
        assert copy.get(path)[0] == 503, path
    assert "adopt_installation or detach_installation" in copy.get("/t/acme/jwks")[1]
    assert copy.get("/uflow/live")[0] == 200
    assert "identity_installation_fenced 1.0" in copy.get("/metrics")[1] or copy.get("/metrics")[0] != 503
    assert copy.run("prepare", "--no-demo").code == 75
    for command in (
        ("create_tenant", "Copy", "--slug", "copy"),
        ("deliver_events", "--once"),
        ("tenant_worker", "--once"),
        ("sync_directory", "--all-due"),
        ("migrate_tenants",),
        ("delete_tenant", "acme", "--yes"),
        ("suspend_tenant", "acme"),
        ("purge_expired",),
        ("backup_tenants", "/tmp/never"),
        ("rotate_signing_keys", "--tenant", "acme"),
    ):
        ended = copy.run(*command)
        assert (ended.code, "fenced" in ended.said) == (2, True), (command, ended)
    assert platform.contents() == before
    # Production is not touched by what the copy tried.
    assert platform.get("/t/acme/jwks")[0] == 200
    platform.create("other")


def test_copy_reports_problems_and_repairs_none(platform: Platform) -> None:
    platform.create("acme")
    copy = platform.copy_global()
    since = platform.create("since")
    orphan = f"{platform.prefix}{secrets.token_hex(8)}"
    with admin_connection() as raw:
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(orphan)))
    before = platform.contents()
    found = copy.run("check_tenants")
    assert (found.code, f"orphan database\tmain\t{orphan}" in found.said) == (1, True), found.said
    assert (
        f"spare of a tenant\tmain\t{platform.database_of('since')}\tit belongs to tenant {since['tenant_id']}"
        in found.said
    )
    assert "fenced installation\tmain\tinstallation\t" in found.said
    assert "adopt_installation if this is production now, or detach_installation if this is a copy" in found.said
    assert f"{orphan}\tno tenant and no spare has this database; --drop-orphans drops it" in found.said
    assert "foreign" not in found.said
    for options in (("--repair",), ("--drop-orphans",), ("--repair", "--drop-orphans")):
        refused = copy.run("check_tenants", *options, "--yes")
        assert (refused.code, "fenced" in refused.said) == (2, True), refused.said
    assert platform.contents() == before


def test_detached_copy_works_without_the_servers_of_production(platform: Platform) -> None:
    platform.create("acme")
    copy = platform.copy_global()
    before = platform.contents()
    assert "main at" in copy.run("detach_installation", "--dry-run").said
    assert copy.get("/uflow/ready")[0] == 503
    ended = copy.run("detach_installation", "--yes")
    assert ended.code == 0, ended.said
    assert copy.get("/uflow/ready")[0] == 200
    assert copy.get("/t/acme/jwks")[0] == 503
    assert "no_server" in copy.run("create_tenant", "X", "--slug", "x").said or copy.run("check_tenants").code == 0
    assert copy.run("prepare", "--no-demo").code == 0
    assert platform.contents() == before
    assert platform.get("/t/acme/jwks")[0] == 200
    platform.create("other")


def test_detached_copy_keeps_servers_that_were_copied_too(platform: Platform) -> None:
    platform.create("acme")
    copy = platform.copy_global()
    assert copy.run("detach_installation", "--keep", "other", "--yes").code == 2
    # Both are on the same server here, so the original loses it.
    ended = copy.run("detach_installation", "--keep", "main", "--yes")
    assert ended.code == 0, ended.said
    assert copy.get("/t/acme/jwks")[0] == 200
    assert platform.get("/t/acme/jwks")[0] == 503
    assert copy.run("create_tenant", "Other", "--slug", "other").code == 0
    assert copy.run("check_tenants").said.endswith("No problems found.\n")


def test_adopted_copy_fences_the_former_global_database(platform: Platform) -> None:
    platform.create("acme")
    copy = platform.copy_global()
    platform.create("since")
    plan = copy.run("adopt_installation", "--dry-run")
    assert f"main\t{platform.database_of('since')}\tit is listed as a spare" in plan.said
    assert copy.run("adopt_installation", "--yes").code == 0
    assert copy.get("/t/acme/jwks")[0] == 200
    assert platform.get("/t/acme/jwks")[0] == 503
    assert platform.run("create_tenant", "X", "--slug", "x").code == 2
    # The way back is the same command.
    assert platform.run("adopt_installation", "--yes").code == 0
    assert platform.get("/t/acme/jwks")[0] == 200
    assert copy.get("/t/acme/jwks")[0] == 503


def test_adopting_ends_connections_of_other_copies(platform: Platform) -> None:
    platform.create("acme")
    copy = platform.copy_global()
    # A process of the original that runs compares the epoch only when it connects.
    with admin_connection(platform.database_of("acme")) as pooled:
        assert copy.run("adopt_installation", "--yes").code == 0
        with pytest.raises(psycopg.OperationalError):
            pooled.execute("SELECT 1")


def test_database_of_another_tenant_is_rejected(platform: Platform) -> None:
    platform.create("acme")
    platform.create("other")
    first, second = platform.database_of("acme"), platform.database_of("other")
    with admin_connection(platform.database) as raw:
        raw.execute("UPDATE tenants_tenantdatabase SET name = 'spoiled' WHERE name = %s", [second])
        raw.execute("UPDATE tenants_tenantdatabase SET name = %s WHERE name = %s", [second, first])
    status, body = platform.get("/t/acme/jwks")
    assert (status, "tenant_database_foreign" in body) == (503, True)
    with admin_connection(platform.database) as raw:
        query = "SELECT count(*) FROM audit_platformevent WHERE action = 'tenant.database_rejected'"
        assert raw.execute(query).fetchone() == (1,)
    assert "foreign database\tmain\tacme" in platform.run("check_tenants").said
    with admin_connection(platform.database) as raw:
        raw.execute("UPDATE tenants_tenantdatabase SET name = %s WHERE name = %s", [first, second])
        raw.execute("UPDATE tenants_tenantdatabase SET name = %s WHERE name = 'spoiled'", [second])
    assert platform.get("/t/acme/jwks")[0] == 200


def test_marked_database_is_not_used_while_the_installation_is_unknown(platform: Platform) -> None:
    # A global database from before the release that has marks: it cannot say that it is no copy.
    platform.create("acme")
    with admin_connection(platform.database) as raw:
        raw.execute("ALTER TABLE tenants_installation RENAME TO hidden")
    status, body = platform.get("/t/acme/jwks")
    assert (status, "installation_unknown" in body) == (503, True)
    with admin_connection(platform.database) as raw:
        raw.execute("ALTER TABLE hidden RENAME TO tenants_installation")
    assert platform.get("/t/acme/jwks")[0] == 200


def test_unmarked_database_is_rejected_and_repaired(platform: Platform) -> None:
    platform.create("acme")
    with admin_connection(platform.database_of("acme")) as raw:
        raw.execute("DELETE FROM tenants_tenantrecord")
    assert platform.get("/t/acme/jwks")[0] == 503
    assert "unmarked database\tmain\tacme" in platform.run("check_tenants").said
    assert platform.run("check_tenants", "--repair", "--yes").said.endswith("No problems found.\n")
    assert platform.get("/t/acme/jwks")[0] == 200


def test_migrate_tenants_marks_databases_of_earlier_releases(platform: Platform) -> None:
    platform.create("acme")
    database = platform.database_of("acme")
    with admin_connection(database) as raw:
        raw.execute("DROP TABLE tenants_tenantrecord")
        raw.execute("DELETE FROM django_migrations WHERE name >= '0016' AND app = 'tenants'")
    with admin_connection(platform.database) as raw:
        raw.execute("UPDATE tenants_tenantdatabase SET schema_version = '' WHERE name = %s", [database])
    assert platform.get("/t/acme/jwks")[0] == 503
    assert platform.run("migrate_tenants").code == 0
    with admin_connection(database) as raw:
        assert raw.execute("SELECT count(*) FROM tenants_tenantrecord WHERE tenant_id IS NOT NULL").fetchone() == (1,)
    assert platform.get("/t/acme/jwks")[0] == 200


# --- a process that was allowed once -----------------------------------------------------------------------------------


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What this process knows of the fence, which is as before after the test. So are the counters."""
    fences.require()
    counters = list(DatabaseServer.objects.values_list("pk", "fence_revision", "fence_beats"))
    monkeypatch.setattr(fences, "_process", replace(fences._process))
    yield
    for pk, revision, beats in counters:
        mark = fences.read_mark(DatabaseServer.objects.get(pk=pk))
        counted = max(revision, mark.revision if mark else 0), max(beats, mark.beats if mark else 0)
        DatabaseServer.objects.filter(pk=pk).update(fence_revision=counted[0], fence_beats=counted[1])


@dataclass(frozen=True)
class Answering:
    """A connection to the global database with one answer."""

    answer: tuple[object, ...] | psycopg.Error

    def execute(self, _: str) -> "Answering":
        if isinstance(self.answer, psycopg.Error):
            raise self.answer
        return self

    def fetchone(self) -> object:
        return self.answer


def note(*answer: object) -> bool:
    """Return whether the process is still allowed after a new connection with this answer."""
    fences.note_new_connection(cast("psycopg.Connection[object]", Answering(answer)))
    return fences._process.installation is not None


@pytest.mark.usefixtures("known")
def test_server_that_was_away_is_compared_before_its_databases_are_used(
    monkeypatch: pytest.MonkeyPatch, new_bare_tenant: Callable[[], Tenant]
) -> None:
    mapping = new_bare_tenant().database
    installation, epoch = fences.own_mark()
    really_read = fences.read_marks
    answers: dict[str, dict[int, fences.ServerMark | None]] = {"now": {}}
    monkeypatch.setattr(fences, "read_marks", lambda _: answers["now"])
    # It does not respond, and the process serves the tenants of the others.
    assert fences.look(again=True) == ()
    with servers.connect_for_maintenance(
        servers.parameters(mapping.server_id, mapping.server.revision, direct=True) | {"dbname": mapping.name}
    ) as raw:

        def check() -> None:
            marks.check(raw, mapping.server_id, mapping.name, mapping.pk)

        # Its mark cannot be read yet, although the tenant's database can be.
        with pytest.raises(psycopg.OperationalError, match="mark of the server"):
            check()
        answers["now"] = {mapping.server_id: ServerMark(uuid4(), installation, epoch, 2**40, 0)}
        monkeypatch.setattr(fences, "_LOOK_AGAIN_SECONDS", 0.0)
        with pytest.raises(InstallationFenced, match="older than the database server"):
            check()
        monkeypatch.setattr(fences, "read_marks", really_read)
        check()
        monkeypatch.setattr(fences, "read_marks", lambda _: pytest.fail("it was compared"))
        check()


@pytest.mark.usefixtures("known")
def test_process_compares_with_the_highest_revisions_that_it_has_seen() -> None:
    installation, epoch = fences.own_mark()
    revisions = fences._process.revisions
    assert note(installation, epoch, revisions + 5)
    assert note(installation, epoch, revisions + 5)
    assert not note(installation, epoch, revisions + 4)


@pytest.mark.usefixtures("known")
def test_process_looks_again_after_an_unanswered_comparison() -> None:
    fences.note_new_connection(cast("psycopg.Connection[object]", Answering(psycopg.errors.QueryCanceled())))
    assert fences._process.installation is None


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("missing", [1, 3])
def test_allowed_process_notices_a_newer_server_before_it_raises_the_revision(missing: int) -> None:
    server = main_server()
    fence_counters.advance(server)
    before = fences.read_mark(server)
    assert before is not None
    DatabaseServer.objects.filter(pk=server.pk).update(fence_revision=before.revision - missing)
    with pytest.raises(InstallationFenced, match=f"{missing} created, moved or deleted"):
        fence_counters.advance(server)
    assert fences.read_mark(server) == before


@pytest.mark.usefixtures("known")
def test_revision_rises_above_that_of_another_row_of_the_same_server(monkeypatch: pytest.MonkeyPatch) -> None:
    server = main_server()
    fence_counters.advance(server)
    before = fences.read_mark(server)
    assert before is not None
    DatabaseServer.objects.filter(pk=server.pk).update(fence_revision=before.revision - 3)
    # As if another row with another login led to it, and had the higher counter.
    monkeypatch.setattr(fence_counters, "look", lambda **_: ())
    fence_counters.advance(server)
    after = fences.read_mark(server)
    assert after is not None
    assert (after.revision, main_server().fence_revision) == (before.revision + 1, before.revision + 1)
