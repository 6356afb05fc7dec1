"""A connection that is lost during a request is replaced where no statement can take effect twice."""

import secrets
import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import connection, connections, transaction
from django.db.utils import OperationalError

from identity_platform.postgresql import statement_timeout
from identity_platform.postgresql.base import is_read
from tenants.database_servers import servers
from tenants.entering.context import in_tenant
from tenants.entering.target import TENANT_ALIAS
from tests.machine.conftest import within
from tests.world import TestTenant


@pytest.fixture(autouse=True)
def request_limit() -> Iterator[None]:
    """As during a request."""
    statement_timeout.limit(5)
    yield
    statement_timeout.limit(None)
    connection.close()


@pytest.fixture
def table() -> Iterator[str]:
    name = f"lost_{secrets.token_hex(4)}"
    execute(f"CREATE TABLE {name} (number int)")
    yield name
    execute(f"DROP TABLE {name}")


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def ask(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])


def process() -> int:
    return ask("SELECT pg_backend_pid()")


def end_when(pid: int, state: str) -> threading.Thread:
    """End a connection from the server's side as soon as it is in this state."""

    def end() -> None:
        with servers.direct_to_global() as raw:
            is_so = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND (wait_event = %s OR state = %s)"
            assert within(5, lambda: raw.execute(is_so, [pid, state, state]).fetchone() is not None)
            raw.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    thread = threading.Thread(target=end)
    thread.start()
    return thread


def lose(during: Callable[[], object], state: str = "PgSleep") -> None:
    """Call a function, under which the connection is lost."""
    thread = end_when(process(), state)
    try:
        during()
    finally:
        thread.join()


def test_read_is_answered_on_another_connection() -> None:
    before, answers = process(), []
    lose(lambda: answers.append(ask("SELECT 7 FROM pg_sleep(0.5)")))
    assert answers == [7]
    assert process() != before


def test_transaction_begins_again_on_another_connection(table: str) -> None:
    def insert() -> None:
        with transaction.atomic():
            execute(f"INSERT INTO {table} SELECT 1 FROM pg_sleep(0.5)")
            with transaction.atomic():
                execute(f"INSERT INTO {table} VALUES (2)")

    lose(insert)
    assert ask(f"SELECT sum(number) FROM {table}") == 3


def test_transaction_that_has_begun_fails_as_a_whole(table: str) -> None:
    def insert() -> None:
        with transaction.atomic():
            execute(f"INSERT INTO {table} VALUES (1)")
            execute(f"INSERT INTO {table} SELECT 2 FROM pg_sleep(0.5)")

    with pytest.raises(OperationalError):
        lose(insert)
    assert ask(f"SELECT count(*) FROM {table}") == 0


def test_write_outside_a_transaction_is_not_repeated(table: str) -> None:
    with pytest.raises(OperationalError):
        lose(lambda: execute(f"INSERT INTO {table} SELECT 1 FROM pg_sleep(0.5)"))
    connection.close()
    assert ask(f"SELECT count(*) FROM {table}") == 0


def test_command_keeps_its_connection() -> None:
    statement_timeout.limit(None)
    with pytest.raises(OperationalError):
        lose(lambda: ask("SELECT 7 FROM pg_sleep(0.5)"))


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ('SELECT "id" FROM "userflow_adminuser"', True),
        ("\n select 1", True),
        ("UPDATE t SET a = 1", False),
        ("WITH changed AS (DELETE FROM t RETURNING 1) SELECT * FROM changed", False),
        ("SELECT procrastinate_defer_jobs_v1(%s)", False),
        ("SELECT id FROM procrastinate_fetch_job_v2(%s)", False),
        ("SELECT nextval('s')", False),
        ("SELECT pg_try_advisory_xact_lock(1)", False),
    ],
)
def test_reads_are_recognised(statement: str, expected: bool) -> None:
    assert is_read(statement) is expected


def test_every_function_that_changes_something_is_known(tenant: TestTenant) -> None:
    # Functions of triggers cannot be called by a statement.
    volatile = (
        "SELECT proname FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace"
        " WHERE nspname = 'public' AND provolatile = 'v' AND prorettype <> 'trigger'::regtype"
        " AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = pg_proc.oid AND d.deptype = 'e')"
    )
    functions = []
    with in_tenant(tenant.id):
        for alias in ("default", TENANT_ALIAS):
            with connections[alias].cursor() as cursor:
                cursor.execute(volatile)
                functions += [name for (name,) in cursor.fetchall()]
    assert {name.partition("_")[0] for name in functions} == {"procrastinate", "tenants", "userflow"}
    assert [name for name in functions if is_read(f"SELECT * FROM {name}(1)")] == []


def test_session_state_is_not_lost_unseen(tenant: TestTenant) -> None:
    def ask_with_state() -> None:
        with in_tenant(tenant.id), connections[TENANT_ALIAS].cursor() as cursor:
            cursor.execute("SET statement_timeout = 4000")
            cursor.execute("SELECT pg_backend_pid()")
            ending = end_when(cursor.fetchone()[0], "PgSleep")
            try:
                cursor.execute("SELECT 7 FROM pg_sleep(0.5)")
            finally:
                ending.join()

    with pytest.raises(OperationalError):
        ask_with_state()
