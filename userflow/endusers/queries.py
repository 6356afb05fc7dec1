"""The hot reads of end users: one statement each, JSON made by PostgreSQL and passed through (performance.md)."""

from typing import Any
from uuid import UUID

import orjson
from django.db import connections

from identity_platform.api.pagination import offset


def _time(column: str) -> str:
    return f"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') AS {column}"


_LISTED = f"id, email, name, active, provider, client_id, {_time('created_at')}, {_time('last_login')}"
_DETAIL = f"{_LISTED}, {_time('updated_at')}, metadata, mfa_methods"
# Writing times in the specified form takes PostgreSQL longer than all the rest of a page: there they come in its own.
_PAGED = "id, email, name, active, provider, client_id, created_at, last_login"
# A row as JSON costs half of what json_build_object() does.
_ONE = f"SELECT row_to_json(u)::text FROM (SELECT {_DETAIL} FROM userflow_enduser WHERE id = %s) u"


_ALL = "SELECT coalesce(sum(users), 0)::bigint FROM userflow_endusercount"


def pattern(text: str) -> str:
    """A LIKE pattern for "contains", with `%` and `_` as they are."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def conditions(filters: dict[str, Any]) -> tuple[str, list[Any]]:
    """WHERE clause and parameters of the list's filters; `clients` is a list of client ids."""
    clauses, values = [], []
    for name, value in filters.items():
        match name:
            case "email":
                clauses.append("email_key LIKE %s")
                values.append(pattern(value.lower()))
            case "name":
                clauses.append("lower(name) LIKE lower(%s)")
                values.append(pattern(value))
            case "provider":
                clauses.append("lower(provider) LIKE lower(%s)")
                values.append(pattern(value))
            case "active" | "client_id":
                clauses.append(f"{name} = %s")
                values.append(value)
            case "clients":
                clauses.append("client_id = ANY(%s)")
                values.append(value)
    return (f" WHERE {' AND '.join(clauses)}" if clauses else ""), values


def page_of_end_users(*, filters: dict[str, Any], page: int, limit: int) -> tuple[int, orjson.Fragment]:
    """The total and the rows of one page, newest first, as ready JSON."""
    where, values = conditions(filters)
    total_of = f"SELECT count(*) FROM userflow_enduser{where}" if where else _ALL
    statement = (
        f"SELECT ({total_of}), (SELECT coalesce(json_agg(u), '[]')::text FROM"
        # e.: the column; without it the text of the same name would be sorted, for every row of the table. The limit
        # stands in the statement, as the server would plan one with an unknown limit anew each time.
        f" (SELECT {_PAGED} FROM userflow_enduser e{where} ORDER BY e.created_at DESC, e.id DESC"
        f" LIMIT {int(limit)} OFFSET %s) u)"
    )
    with connections["tenant"].cursor() as cursor:
        cursor.execute(statement, [*values, *values, offset(page, limit)])
        total, rows = cursor.fetchone()
    return total, orjson.Fragment(_in_utc(rows))


def _in_utc(rows: str) -> str:
    """The rows with Z for +00:00 in both times, which are a row's last two members.

    Tenant databases are set to UTC (`tenants.databases.set_limits`). A quote inside a value has a backslash before it, so
    no value, whatever somebody is called, holds what is replaced here.
    """
    return rows.replace('+00:00","last_login":', 'Z","last_login":').replace('+00:00"}', 'Z"}')


def one_end_user(user_id: UUID) -> orjson.Fragment | None:
    """One end user as ready JSON, or None."""
    with connections["tenant"].cursor() as cursor:
        cursor.execute(_ONE, [user_id])
        row = cursor.fetchone()
    return orjson.Fragment(row[0]) if row else None
