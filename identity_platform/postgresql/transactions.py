"""What the open transaction of a database is told for which the ORM has no words: locks, its snapshot, and its timeouts."""

from identity_platform.postgresql.statements import execute, fetch_row


def advisory_lock(alias: str, number: int, subject: str | None = None) -> None:
    """Wait for the advisory lock of this number, and of this subject if there is one; take it until the transaction ends.

    PostgreSQL documentation 13.3.5. The number of a lock with a subject has 31 bits.
    """
    if subject is None:
        execute(alias, "SELECT pg_advisory_xact_lock(%s)", [number])
    else:
        execute(alias, "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [number, subject])


def try_advisory_lock(alias: str, number: int) -> bool:
    """Take the advisory lock of this number until the transaction ends, or return False if another transaction has it."""
    return bool(fetch_row(alias, "SELECT pg_try_advisory_xact_lock(%s)", [number])[0])


def read_one_snapshot(alias: str, *, read_only: bool) -> None:
    """Let all statements see the database as the first of them does. Call it before the first."""
    execute(alias, f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ{', READ ONLY' if read_only else ''}")


def set_timeout(alias: str, name: str, milliseconds: int) -> None:
    """Set a timeout of the server, by its name, until the transaction ends; 0 is none."""
    execute(alias, f"SET LOCAL {name} = {milliseconds:d}")


def lift_timeouts(alias: str) -> None:
    """Let statements and the pauses between them last as long as they take, until the transaction ends."""
    execute(alias, "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
