"""The users of a group or a role: pages by number and by cursor. Every user has the role `user`, so they can be very many."""

from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import BooleanField, F, Func, QuerySet, Value
from django.db.models.lookups import LessThan

from identity_platform.api.cursors import Position, read_cursor, write_cursor
from identity_platform.api.pagination import Page, offset
from identity_platform.api.totals import total_of
from identity_platform.postgresql.json_pages import far_slice
from tenants import keys
from tenants.entering.context import current_tenant
from userflow.accounts.models import GroupMembership, RoleBinding

Members = QuerySet[GroupMembership] | QuerySet[RoleBinding]
_NEWEST: Final = ("-created_at", "-pk")
_OLDEST: Final = ("created_at", "pk")
# From this offset on, a page reads its ids from an index and from the nearer end: OFFSET joins the rows that it discards.
_FAR: Final = 1000


class _Both(Func):
    """Two values that are compared as one, so that an index of both finds where to begin."""

    template = "(%(expressions)s)"
    output_field = BooleanField()


def page_of_members(members: Members, *, holder: UUID, page: int, limit: int, cursor: str | None = None) -> Page:
    """Return one page of the members of a group or role, newest first, as the API shows them.

    `members` are all of its rows, `holder` is its id. The page is the one that a cursor names, or else by number.
    Raises CursorInvalid.
    """
    list_key = orjson.dumps([members.model._meta.label, current_tenant().tenant_id, holder])
    start, total = offset(page, limit), None
    if cursor is not None:
        after = read_cursor(cursor, key=keys.platform_key(), list_id=list_key)
        page = after.page
        rows = _read(_behind(members, after).order_by(*_NEWEST)[: limit + 1])
    elif start < _FAR:
        rows = _read(members.order_by(*_NEWEST)[start : start + limit + 1])
        if len(rows) <= limit and (rows or not start):
            total = start + len(rows)
    else:
        total = total_of(list_key, members.count)
        rows = _far(members, start, limit + 1, total)
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        position = Position(last["created_at"], UUID(int=last["pk"]), page + 1)
        following = write_cursor(position, key=keys.platform_key(), list_id=list_key)
    shown = [
        {
            "id": row["user_id"],
            "email": row["user__email"],
            "name": row["user__name"],
            "active": row["user__active"],
            "since": row["created_at"],
        }
        for row in rows[:limit]
    ]
    return Page(shown, page, limit, total_of(list_key, members.count) if total is None else total, following)


def _behind(members: Members, after: Position) -> Members:
    last = _Both(Value(after.created_at), Value(after.id.int))
    return members.filter(LessThan(_Both(F("created_at"), F("pk")), last))


def _far(members: Members, start: int, limit: int, total: int) -> list[dict[str, Any]]:
    if start >= total:
        return []
    part = far_slice(start, limit, total)
    ordered = members.order_by(*(_OLDEST if part.backwards else _NEWEST))
    ids = list(ordered.values_list("pk", flat=True)[part.offset : part.offset + part.limit])
    return _read(members.filter(pk__in=ids).order_by(*_NEWEST))


def _read(members: Members) -> list[dict[str, Any]]:
    fields = members.values("pk", "user_id", "user__email", "user__name", "user__active", "created_at")
    return [dict(row) for row in fields]
