"""Reads of end users, one statement each, and the comparison of their counters.

PostgreSQL builds the JSON and the API passes it through.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.db import connections
from django.db.backends.utils import CursorWrapper

from identity_platform.api.email_addresses import search_key
from identity_platform.api.pagination import offset
from identity_platform.api.totals import total_of
from identity_platform.postgresql.json_pages import Query, Slice, json_time, read_page
from identity_platform.postgresql.statements import execute, fetch_row, fetch_rows
from tenants.backend.raw import PLANNED_EACH_TIME
from tenants.entering.target import current_target
from userflow.accounts.models import EndUserCount


def _time(column: str) -> str:
    return f"{json_time(column)} AS {column}"


_LISTED = f"id, email, name, active, provider, client_id, {_time('created_at')}, {_time('last_login')}"
_DETAIL = (
    f"{_LISTED}, {_time('updated_at')}, nullif(language, '') AS language, external_id, metadata, app_metadata,"
    " mfa_methods"
)
# Formatting times takes PostgreSQL longer than the rest of a page, so a page keeps its own format (see `_in_utc`).
_PAGED = "id, email, name, active, provider, client_id, created_at, last_login"
# `e.` names the column; without it the formatted text of the same name would be sorted, for every row of the table.
_NEWEST = "ORDER BY e.created_at DESC, e.id DESC"
_OLDEST = "ORDER BY e.created_at, e.id"
# row_to_json() costs half of what json_build_object() does.
# The same roles that `sessions.verify` reads for a token: those of the user and of the user's groups.
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
# Totals of these filters need no count: triggers keep one per value (`EndUserCount`).
_COUNTED = frozenset({"active", "client_id", "clients", "provider", "providers"})
_TOTAL = "coalesce(sum(users), 0)::bigint FROM userflow_endusercount"
# Counters compared with the users, in one statement, so in one snapshot.
_WRONG_COUNTS = """
SELECT active, client_id, provider, sum(users) FROM (
    SELECT active, client_id, provider, count(*) AS users FROM userflow_enduser GROUP BY 1, 2, 3
    UNION ALL
    SELECT active, client_id, provider, -users FROM userflow_endusercount
) AS compared GROUP BY 1, 2, 3 HAVING sum(users) <> 0 ORDER BY 1, 2, 3
"""
# The lock keeps writers out until the end of the transaction: what they add meanwhile would be in no count.
_LOCK_USERS = "LOCK TABLE userflow_enduser IN SHARE ROW EXCLUSIVE MODE"
_COUNT_AGAIN = """
INSERT INTO userflow_endusercount (users, active, client_id, provider)
SELECT count(*), active, client_id, provider FROM userflow_enduser GROUP BY 2, 3, 4
"""
# A page of an export, in one statement. The default client is left out, as another tenant has its own.
_EXPORTED = """
SELECT u.id, row_to_json(u)::text FROM (
    SELECT e.id, e.email, nullif(e.name, '') AS name, e.active, e.provider, nullif(e.client_id, %(client)s) AS client_id,
        CASE WHEN %(hashes)s THEN nullif(e.password, '') END AS password_hash,
        nullif(e.language, '') AS language, e.external_id, e.metadata, e.app_metadata,
        (SELECT coalesce(json_agg(g.name ORDER BY g.name), '[]') FROM userflow_groupmembership m
            JOIN userflow_group g ON g.id = m.group_id WHERE m.user_id = e.id) AS groups,
        (SELECT coalesce(json_agg(r.name ORDER BY r.name), '[]') FROM userflow_rolebinding b
            JOIN userflow_role r ON r.id = b.role_id WHERE b.user_id = e.id) AS roles,
        e.email_verified_at IS NOT NULL AS email_verified,
        to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at,
        to_char(e.last_login AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS last_login
    FROM userflow_enduser e {behind} ORDER BY e.id LIMIT %(limit)s
) u ORDER BY u.id
"""
# The first page has no lower bound, as an import may state any id, even the lowest.
_FIRST_EXPORTED = _EXPORTED.format(behind="")
_NEXT_EXPORTED = _EXPORTED.format(behind="WHERE e.id > %(after)s")
# From this offset on, a page reads its ids from an index and from the nearer end. Nearer pages are faster in one statement.
_FAR = 2000


def pattern(text: str) -> str:
    """Return a LIKE pattern for "contains" that matches `%` and `_` literally."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


# A single provider can use the index, which is in the order of the list.
_CONDITIONS = {
    "email": "email_key LIKE %s",
    "name": "lower(name) LIKE lower(%s)",
    "active": "active = %s",
    "client_id": "client_id = %s",
    "clients": "client_id = ANY(%s)",
    "provider": "provider = %s",
    "providers": "provider = ANY(%s)",
    "external_id": "external_id = %s",
}


def conditions(filters: Mapping[str, object]) -> tuple[str, list[Any]]:
    """Return WHERE clause and parameters of the filters; `clients` are client ids, `providers` full names."""
    values: list[Any] = []
    for name, value in filters.items():
        text = search_key(str(value)) if name == "email" else str(value)
        values.append(pattern(text) if name in ("email", "name") else value)
    return (f" WHERE {' AND '.join(_CONDITIONS[name] for name in filters)}" if filters else ""), values


@dataclass(frozen=True, slots=True)
class EndUserPage:
    """One page as ready JSON, the true total, and the last row's time and id if a page follows."""

    total: int
    rows: orjson.Fragment
    last: tuple[datetime, UUID] | None


def page_of_end_users(*, filters: Mapping[str, object], page: int, limit: int) -> EndUserPage:
    """Return one page by its number, newest first.

    One statement; one more for a filter by provider, for a page far from the first, and for the total of a text that fills
    the page.
    """
    with connections["tenant"].cursor() as cursor:
        filters = _with_providers(cursor, filters)
        where, values = conditions(filters)
        start = offset(page, limit)
        if not filters.keys() <= _COUNTED:
            rows = _after(cursor, where, [*values, start], limit, by_text=True)
            # A page that is not full ends the list.
            known = start + len(rows) if len(rows) <= limit and (rows or not start) else None
            return _end_user_page(rows, limit, _total_of_text(cursor, filters) if known is None else known)
        total, text = read_page(
            cursor,
            total=Query(f"SELECT {_TOTAL}{where}", values),
            rows=lambda part: _far_rows(where, values, part) if part.far else _rows(where, values, part),
            page=page,
            limit=limit,
            far=_FAR,
        )
    follows = start + limit < total and text != "[]"
    return EndUserPage(total, orjson.Fragment(_in_utc(text)), _key_of_last(text) if follows else None)


def page_behind(*, filters: Mapping[str, object], created_at: datetime, user_id: UUID, limit: int) -> EndUserPage:
    """Return the page behind a row, newest first, at the same cost anywhere in the list.

    Two statements: the page and the total; one more for a filter by provider.
    """
    with connections["tenant"].cursor() as cursor:
        filters = _with_providers(cursor, filters)
        where, values = conditions(filters)
        behind = f"{where} {'AND' if where else 'WHERE'} (e.created_at, e.id) < (%s, %s)"
        by_text = not filters.keys() <= _COUNTED
        rows = _after(cursor, behind, [*values, created_at, user_id, 0], limit, by_text=by_text)
        if by_text:
            return _end_user_page(rows, limit, _total_of_text(cursor, filters))
        cursor.execute(f"SELECT {_TOTAL}{where}", values)
        [total] = cursor.fetchone()
    return _end_user_page(rows, limit, total)


def _with_providers(cursor: CursorWrapper, filters: Mapping[str, object]) -> dict[str, object]:
    """Replace the provider by its spellings in use."""
    filters = dict(filters)
    provider = filters.pop("provider", None)
    if provider is None:
        return filters
    spellings = _providers(cursor, str(provider))
    return filters | ({"provider": spellings[0]} if len(spellings) == 1 else {"providers": spellings})


def _after(cursor: CursorWrapper, where: str, values: list[Any], limit: int, *, by_text: bool) -> list[str]:
    """Return the rows after an offset, the last of the values, each as JSON: one more than the page if another follows.

    Whether an index of texts or the order of the list is read depends on how many users have the text.
    """
    cursor.execute(
        f"SELECT row_to_json(u)::text FROM (SELECT {_PAGED} FROM userflow_enduser e{where} {_NEWEST}"
        f" LIMIT {limit + 1:d} OFFSET %s) u{PLANNED_EACH_TIME if by_text else ''}",
        values,
    )
    return [row for (row,) in cursor]


def _end_user_page(rows: list[str], limit: int, total: int) -> EndUserPage:
    text = f"[{','.join(rows[:limit])}]"
    return EndUserPage(total, orjson.Fragment(_in_utc(text)), _key_of_last(text) if len(rows) > limit else None)


def _total_of_text(cursor: CursorWrapper, filters: Mapping[str, object]) -> int:
    """Count the users who match filters by text. That visits each of them: 0.2 s if one of twenty in a million matches."""

    def count() -> int:
        where, values = conditions(filters)
        cursor.execute(f"SELECT count(*) FROM userflow_enduser e{where}{PLANNED_EACH_TIME}", values)
        return int(cursor.fetchone()[0])

    return total_of(orjson.dumps([current_target().key, sorted(filters.items())]), count)


def _rows(where: str, values: list[Any], part: Slice) -> Query:
    # The limit is part of the statement: the server would plan a statement with an unknown limit each time.
    sql = (
        f"SELECT coalesce(json_agg(u), '[]')::text FROM"
        f" (SELECT {_PAGED} FROM userflow_enduser e{where} {_NEWEST} LIMIT {part.limit:d} OFFSET %s) u"
    )
    return Query(sql, [*values, part.offset])


def _far_rows(where: str, values: list[Any], part: Slice) -> Query:
    """Look the ids up in an index alone and read only these rows."""
    order = _OLDEST if part.backwards else _NEWEST
    sql = (
        f"SELECT coalesce(json_agg(u), '[]')::text FROM (SELECT {_PAGED} FROM userflow_enduser e JOIN"
        f" (SELECT e.id FROM userflow_enduser e{where} {order} LIMIT {part.limit:d} OFFSET %s) found USING (id)"
        f" {_NEWEST}) u"
    )
    return Query(sql, [*values, part.offset])


def _providers(cursor: CursorWrapper, provider: str) -> list[str]:
    """Return all spellings of the provider in use, which differ in case."""
    cursor.execute(
        "SELECT provider FROM userflow_endusercount WHERE lower(provider) = lower(%s)"
        " GROUP BY provider HAVING sum(users) > 0 ORDER BY provider",
        [provider],
    )
    return [name for (name,) in cursor]


def _key_of_last(rows: str) -> tuple[datetime, UUID]:
    """Return time and id of the last row. JSON escapes quotes inside values, so no value can contain the searched text."""
    id_at = rows.rindex('{"id":"') + 7
    at = rows.index('"created_at":"', id_at) + 14
    return datetime.fromisoformat(rows[at : rows.index('"', at)]), UUID(rows[id_at : id_at + 36])


def _in_utc(rows: str) -> str:
    """Write Z for +00:00 in both times, which are the last two fields of a row.

    Tenant databases use UTC (`tenants.copies.databases.set_limits`). JSON escapes quotes inside values, so no value can contain
    the replaced text.
    """
    return rows.replace('+00:00","last_login":', 'Z","last_login":').replace('+00:00"}', 'Z"}')


def one_end_user(user_id: UUID) -> orjson.Fragment | None:
    """Return one end user as ready JSON, or None."""
    row = fetch_row("tenant", _ONE, [user_id])
    return orjson.Fragment(row[0]) if row else None


class ExportedUser(NamedTuple):
    """An end user's id, and the row of an export as JSON."""

    id: UUID
    text: str


def exported_page(*, after: UUID | None, limit: int, hashes: bool, default_client: UUID) -> list[ExportedUser]:
    """Return the rows of an export after this id, in the order of the ids, with password hashes or without."""
    values = {"after": after, "limit": limit, "hashes": hashes, "client": default_client}
    rows = fetch_rows("tenant", _FIRST_EXPORTED if after is None else _NEXT_EXPORTED, values)
    return [ExportedUser(*row) for row in rows]


def table_exceeds(number_of_bytes: int) -> bool:
    """Return whether the table of users is larger than this."""
    return bool(fetch_row("tenant", "SELECT pg_relation_size('userflow_enduser') > %s", [number_of_bytes])[0])


class WrongCount(NamedTuple):
    """By how much a counter differs from the users that it counts."""

    active: bool
    client_id: UUID | None
    provider: str
    difference: int


def wrong_counts() -> list[WrongCount]:
    """Return the counters that are wrong."""
    rows = fetch_rows("tenant", _WRONG_COUNTS)
    return [WrongCount(active, client_id, provider, int(number)) for active, client_id, provider, number in rows]


def count_again() -> None:
    """Count the users again. Call it in a transaction."""
    execute("tenant", _LOCK_USERS)
    EndUserCount.objects.all().delete()
    execute("tenant", _COUNT_AGAIN)
