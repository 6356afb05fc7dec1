"""Delete events after their retention period. The chain records up to which event."""

from collections.abc import Callable
from datetime import datetime

from django.db import transaction
from django.db.backends.utils import CursorWrapper

from identity_platform.audit.chain import LINK_COLUMNS, Link, Trail, append, as_link, keep_head, locked, newest_link
from identity_platform.audit.models import Seal

PURGED_AT_ONCE = 2000


def purge(trail: Trail, *, before: datetime, seen: Callable[[int], None] = lambda events: None) -> int:
    """Delete sealed events that are older than `before`, by whole links. Return how many events were deleted.

    An anchor is added to the chain first; only then do the triggers allow the deletion. If the process is killed in
    between, the next run continues with the same anchor.
    """
    with transaction.atomic(using=trail.alias), trail.cursor() as cursor:
        if not locked(cursor):
            return 0
        anchor, added = _anchor(cursor, trail, before)
    if anchor is None:
        return 0
    if added:
        keep_head(trail, anchor)
    gone = 0
    while number := _delete_some(trail, trail.events, "id", anchor.to_id):
        gone += number
        seen(number)
    while _delete_some(trail, trail.links, "number", anchor.purged_number or 0):
        pass
    return gone


def _anchor(cursor: CursorWrapper, trail: Trail, before: datetime) -> tuple[Link | None, bool]:
    """The anchor to purge by, and whether it is new."""
    standing = newest_link(cursor, trail, Seal.ANCHOR)
    cursor.execute(
        f"SELECT {LINK_COLUMNS} FROM {trail.links} WHERE kind = %s AND number > %s AND number < coalesce("
        f"(SELECT min(number) FROM {trail.links} WHERE kind = %s AND newest_at >= %s), 9223372036854775807)"
        " ORDER BY number DESC LIMIT 1",
        [Seal.ROWS, (standing.purged_number or 0) if standing else 0, Seal.ROWS, before],
    )
    row = cursor.fetchone()
    if row is None:
        return standing, False
    cut, last = as_link(row), newest_link(cursor, trail)
    assert last is not None  # there is at least the link that is cut off
    cursor.execute(f"SELECT count(*) FROM {trail.events} WHERE id <= %s", [cut.to_id])
    anchor = Link(
        number=last.number + 1,
        kind=Seal.ANCHOR,
        from_id=standing.to_id + 1 if standing else 1,
        to_id=cut.to_id,
        count=cursor.fetchone()[0],
        newest_at=cut.newest_at,
        purged_number=cut.number,
        digest=cut.mac,
        previous=last.mac,
    )
    return append(cursor, trail, anchor), True


def _delete_some(trail: Trail, table: str, column: str, upto: int) -> int:
    with trail.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {table} WHERE {column} IN"
            f" (SELECT {column} FROM {table} WHERE {column} <= %s ORDER BY {column} LIMIT %s)",
            [upto, PURGED_AT_ONCE],
        )
        return int(cursor.rowcount)
