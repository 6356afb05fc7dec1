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
# e.: the column; without it the text of the same name would be sorted, for every row of the table.
_NEWEST = "ORDER BY e.created_at DESC, e.id DESC"
_OLDEST = "ORDER BY e.created_at, e.id"
# A row as JSON costs half of what json_build_object() does.
# As `sessions.verify` reads them for a token: a user also has the roles of their groups.
_ROLES = (
    "ARRAY(SELECT r.name FROM userflow_role r WHERE r.id IN"
    " (SELECT b.role_id FROM userflow_rolebinding b WHERE b.user_id = e.id"
    " UNION SELECT gr.role_id FROM userflow_groupmembership m JOIN userflow_group_roles gr ON gr.group_id = m.group_id"
    ' WHERE m.user_id = e.id) ORDER BY r.name COLLATE "C") AS roles'
)
_GROUPS = (
    "ARRAY(SELECT g.name FROM userflow_groupmembership m JOIN userflow_group g ON g.id = m.group_id"
    ' WHERE m.user_id = e.id ORDER BY g.name COLLATE "C") AS groups'
)
_ONE = f"SELECT row_to_json(u)::text FROM (SELECT {_DETAIL}, {_ROLES}, {_GROUPS} FROM userflow_enduser e WHERE e.id = %s) u"
# Filters by these cost no count of their own: triggers keep one for each of their values (`EndUserCount`).
_COUNTED = frozenset({"active", "client_id", "clients", "providers"})
# From here on a page is looked for in an index alone and from the nearer end, and its rows are fetched afterwards.
# Nearer pages are quicker in one statement.
_FAR = 2000


def pattern(text: str) -> str:
    """A LIKE pattern for "contains", with `%` and `_` as they are."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def conditions(filters: dict[str, Any]) -> tuple[str, list[Any]]:
    """WHERE clause and parameters of the list's filters; `clients` are client ids, `providers` whole names."""
    clauses, values = [], []
    for name, value in filters.items():
        match name:
            case "email":
                clauses.append("email_key LIKE %s")
                values.append(pattern(value.lower()))
            case "name":
                clauses.append("lower(name) LIKE lower(%s)")
                values.append(pattern(value))
            case "active" | "client_id":
                clauses.append(f"{name} = %s")
                values.append(value)
            case "clients":
                clauses.append("client_id = ANY(%s)")
                values.append(value)
            case "providers" if len(value) == 1:
                # Its index has them in the order of the list.
                clauses.append("provider = %s")
                values.extend(value)
            case "providers":
                clauses.append("provider = ANY(%s)")
                values.append(value)
    return (f" WHERE {' AND '.join(clauses)}" if clauses else ""), values


def page_of_end_users(*, filters: dict[str, Any], page: int, limit: int) -> tuple[int, orjson.Fragment]:
    """The total and the rows of one page, newest first, as ready JSON.

    One statement; one more where providers are looked for, and for a page far behind the first.
    """
    filters = dict(filters)
    wanted = filters.pop("provider", None)
    with connections["tenant"].cursor() as cursor:
        if wanted is not None:
            filters["providers"] = _providers(cursor, wanted)
        where, values = conditions(filters)
        counted = filters.keys() <= _COUNTED
        total_of = (
            f"SELECT coalesce(sum(users), 0)::bigint FROM userflow_endusercount{where}"
            if counted
            else f"SELECT count(*) FROM userflow_enduser{where}"
        )
        start = offset(page, limit)
        if counted and start >= _FAR:
            cursor.execute(total_of, values)
            [total] = cursor.fetchone()
            rows = _far_page(cursor, where, values, start, min(limit, total - start), total) if start < total else "[]"
        else:
            # The limit stands in the statement, as the server would plan one with an unknown limit anew each time.
            cursor.execute(
                f"SELECT ({total_of}), (SELECT coalesce(json_agg(u), '[]')::text FROM"
                f" (SELECT {_PAGED} FROM userflow_enduser e{where} {_NEWEST} LIMIT {int(limit)} OFFSET %s) u)",
                [*values, *values, start],
            )
            total, rows = cursor.fetchone()
    return total, orjson.Fragment(_in_utc(rows))


def _providers(cursor: Any, wanted: str) -> list[str]:
    """The spellings of the provider, which differ in case, of those that users have."""
    cursor.execute(
        "SELECT provider FROM userflow_endusercount WHERE lower(provider) = lower(%s)"
        " GROUP BY provider HAVING sum(users) > 0 ORDER BY provider",
        [wanted],
    )
    return [name for (name,) in cursor]


def _far_page(cursor: Any, where: str, values: list[Any], start: int, limit: int, total: int) -> str:
    """The rows of a page as JSON, its ids looked for from the end of the list that is nearer."""
    behind = total - start - limit
    order, skipped = (_NEWEST, start) if start <= behind else (_OLDEST, behind)
    cursor.execute(
        f"SELECT coalesce(json_agg(u), '[]')::text FROM (SELECT {_PAGED} FROM userflow_enduser e JOIN"
        f" (SELECT e.id FROM userflow_enduser e{where} {order} LIMIT {int(limit)} OFFSET %s) found USING (id)"
        f" {_NEWEST}) u",
        [*values, skipped],
    )
    [rows] = cursor.fetchone()
    return str(rows)


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
