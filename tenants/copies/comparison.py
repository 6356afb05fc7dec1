"""Compare two copies of a database whose rows no longer change, and copy what replication leaves out.

A table's checksum is the sum of a 64-bit hash of each row's text, so the order of rows does not matter. Both sides are read at
the same time, each over several connections, the largest tables first.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from psycopg import sql

from tenants.copies import databases
from tenants.database_servers.queries import connection_to
from tenants.database_servers.replication import TABLES
from tenants.errors import CopyFailed
from tenants.models import DatabaseServer

# Of each side. More than one, because one large table should not delay all others.
_CONNECTIONS: Final = 2
# The text of a value depends on these.
_SAME_TEXT: Final = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET extra_float_digits = 1"
)

Table = tuple[str, str]
Checksums = dict[Table, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two databases."""

    server: DatabaseServer
    database: str


class Comparison:
    """Connections to both sides, opened before the pause: opening them takes longer than most queries."""

    def __init__(
        self, source: Sequence[databases.Raw], copy: Sequence[databases.Raw], pool: ThreadPoolExecutor
    ) -> None:
        self.source, self.copy = source, copy
        self._pool = pool

    @property
    def processes(self) -> list[int]:
        """The processes of the source's sessions, which cannot write."""
        return [raw.info.backend_pid for raw in self.source]

    def rows(self, left: Callable[[], float]) -> int:
        """Compare the checksums of all tables; return the number of rows. `left` returns how many seconds are left.

        Raises CopyFailed if a table differs, psycopg.errors.QueryCanceled if it takes longer.
        """
        ours, theirs = self.checksums(left)
        differing = [table for table in sorted(ours.keys() | theirs.keys()) if ours.get(table) != theirs.get(table)]
        if differing:
            names = ", ".join(".".join(table) for table in differing[:5])
            raise CopyFailed(f"The copy differs from the original in {names}. Nothing was changed.")
        return sum(rows for rows, _ in ours.values())

    def checksums(self, left: Callable[[], float]) -> tuple[Checksums, Checksums]:
        """Return the number of rows and the checksum of every table, of both sides."""
        checksums_of_sides: tuple[Checksums, Checksums] = ({}, {})
        running = [
            self._pool.submit(_read, raw, tables, into, left)
            for connections, into in zip((self.source, self.copy), checksums_of_sides, strict=True)
            for tables in [_tables(connections[0])]
            for raw in connections
        ]
        for done in running:
            done.result()
        return checksums_of_sides


@contextmanager
def comparison(source: Side, copy: Side) -> Iterator[Comparison]:
    """Open the connections of a comparison."""
    with ExitStack() as stack:
        sides: list[list[databases.Raw]] = [[], []]
        for side, opened in zip((source, copy), sides, strict=True):
            for _ in range(_CONNECTIONS):
                raw = stack.enter_context(connection_to(side.server, side.database))
                raw.execute(_SAME_TEXT)
                opened.append(raw)
        for raw in sides[0]:
            raw.execute("SET default_transaction_read_only = on")
        pool = stack.enter_context(ThreadPoolExecutor(2 * _CONNECTIONS, thread_name_prefix="comparison"))
        yield Comparison(sides[0], sides[1], pool)


def _tables(raw: databases.Raw) -> "SimpleQueue[Table]":
    tables: SimpleQueue[Table] = SimpleQueue()
    query = f"SELECT n.nspname, c.relname {TABLES} ORDER BY pg_relation_size(c.oid) DESC, 1, 2"
    for schema, name in raw.execute(query).fetchall():
        tables.put((schema, name))
    return tables


def _read(raw: databases.Raw, tables: "SimpleQueue[Table]", into: Checksums, left: Callable[[], float]) -> None:
    """Read tables from the queue until it is empty."""
    with suppress(Empty):
        while True:
            table = tables.get_nowait()
            raw.execute(f"SET statement_timeout = {max(1, round(left() * 1000))}")
            ((rows, total),) = raw.execute(_checksum_of(table)).fetchall()
            into[table] = rows, int(total)


def _checksum_of(table: Table) -> sql.Composed:
    # Numeric, as a sum of 64-bit numbers can be larger than 64 bits.
    return sql.SQL("SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM ONLY {} t").format(
        sql.Identifier(*table)
    )


def copy_sequences(old: databases.Raw, new: databases.Raw) -> None:
    """Set all sequences of the copy to the values of the original; replication leaves them out."""
    names = old.execute(
        "SELECT schemaname, sequencename FROM pg_sequences WHERE schemaname NOT LIKE 'pg\\_%' ORDER BY 1, 2"
    ).fetchall()
    if not names:
        return
    select = sql.SQL("SELECT {}::text, last_value, is_called FROM {}")
    sequences = [sql.Identifier(*name) for name in names]
    values = old.execute(
        sql.SQL(" UNION ALL ").join(select.format(sql.Literal(name.as_string()), name) for name in sequences)
    ).fetchall()
    new.execute(
        sql.SQL("SELECT {}").format(
            sql.SQL(", ").join(sql.SQL("setval({}, {}, {})").format(*map(sql.Literal, value)) for value in values)
        )
    )


def copy_large_objects(old: databases.Raw, new: databases.Raw) -> None:
    """Copy large objects that were changed since the copy was made; replication leaves them out."""
    listed = "SELECT oid, md5(lo_get(oid)) FROM pg_largeobject_metadata"
    ours: dict[int, str] = dict(old.execute(listed).fetchall())
    theirs: dict[int, str] = dict(new.execute(listed).fetchall())
    for oid in theirs.keys() - ours.keys():
        new.execute("SELECT lo_unlink(%s)", [oid])
    for oid, checksum in ours.items():
        if theirs.get(oid) != checksum:
            with new.transaction():
                if oid in theirs:
                    new.execute("SELECT lo_unlink(%s)", [oid])
                (data,) = old.execute("SELECT lo_get(%s)", [oid]).fetchall()[0]
                new.execute("SELECT lo_from_bytea(%s, %s)", [oid, data])
