"""The hot reads of end users: one statement each, JSON made by PostgreSQL and passed through (performance.md)."""

from typing import Any
from uuid import UUID

import orjson
from django.db import connections

from identity_platform.api.pagination import offset

_TIME = "to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
_LISTED = (
    "json_build_object('id', id, 'email', email, 'name', name, 'active', active, 'provider', provider,"
    f" 'client_id', client_id, 'created_at', {_TIME.format('created_at')},"
    f" 'last_login', {_TIME.format('last_login')})"
)
_DETAIL = (
    "json_build_object('id', id, 'email', email, 'name', name, 'active', active, 'provider', provider,"
    f" 'client_id', client_id, 'created_at', {_TIME.format('created_at')}, 'last_login', {_TIME.format('last_login')},"
    f" 'updated_at', {_TIME.format('updated_at')}, 'metadata', metadata, 'mfa_methods', mfa_methods)"
)
_ONE = f"SELECT {_DETAIL}::text FROM userflow_enduser WHERE id = %s"


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
    statement = (
        f"SELECT (SELECT count(*) FROM userflow_enduser{where}), (SELECT coalesce(json_agg(row), '[]')::text FROM"
        f" (SELECT {_LISTED} AS row FROM userflow_enduser{where} ORDER BY created_at DESC, id DESC LIMIT %s OFFSET %s) p)"
    )
    with connections["tenant"].cursor() as cursor:
        cursor.execute(statement, [*values, *values, limit, offset(page, limit)])
        total, rows = cursor.fetchone()
    return total, orjson.Fragment(rows)


def one_end_user(user_id: UUID) -> orjson.Fragment | None:
    """One end user as ready JSON, or None."""
    with connections["tenant"].cursor() as cursor:
        cursor.execute(_ONE, [user_id])
        row = cursor.fetchone()
    return orjson.Fragment(row[0]) if row else None
