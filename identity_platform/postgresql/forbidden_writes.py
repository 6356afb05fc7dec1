"""Reject statements that change something, where a caller has forbidden it: the safety net of the read-only mode.

The server's own `default_transaction_read_only` would need a SET for each connection, which a pooler in transaction mode hands
to other callers.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from psycopg import sql

# Commands that change rows or tables, locks of rows, and functions that change something although a SELECT calls them.
_CHANGES: Final = re.compile(
    r"\b(?:(?:INSERT|UPDATE|DELETE|MERGE|TRUNCATE|COPY|CREATE|ALTER|DROP|LOCK\s+TABLE|FOR\s+(?:KEY\s+)?SHARE)\b|"
    r"(?:procrastinate_\w+|userflow_count\w+|tenants_tell\w+|nextval|setval|lo_\w+)\s*\()",
    re.IGNORECASE,
)
# Names and constants in quotes are no commands.
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_forbidden: ContextVar[Mapping[str, Exception] | None] = ContextVar("forbidden_writes", default=None)


@contextmanager
def forbid_writes(error: Exception, *aliases: str) -> Iterator[None]:
    """Raise `error` for each statement inside that changes something in the database of one of the aliases."""
    token = _forbidden.set({**(_forbidden.get() or {}), **dict.fromkeys(aliases, error)})
    try:
        yield
    finally:
        _forbidden.reset(token)


def may_write(alias: str) -> bool:
    """Return whether writes to the database of this alias are not forbidden, for a read that notes something beside."""
    return alias not in (_forbidden.get() or {})


def check_statement(alias: str, statement: object) -> None:
    """Raise the error of `forbid_writes` if the statement may not be executed. Costs one look-up while nothing is forbidden."""
    forbidden = _forbidden.get()
    if forbidden and (error := forbidden.get(alias)) is not None and changes(statement):
        raise error


def changes(statement: object) -> bool:
    """Return whether a statement changes something, or locks rows to do so."""
    text = statement.as_string(None) if isinstance(statement, sql.Composable) else str(statement)
    return _CHANGES.search(_QUOTED.sub("", text)) is not None
