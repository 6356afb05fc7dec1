"""Delete events after their retention period. The chain records up to which event."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from django.db import transaction
from django.db.models import Min, Model, QuerySet

from identity_platform.audit.chain import Trail, append, keep_head, locked, newest_link
from identity_platform.audit.models import Seal

PURGED_AT_ONCE = 2000

Row = TypeVar("Row", bound=Model)


def purge(trail: Trail, *, before: datetime, seen: Callable[[int], None] = lambda events: None) -> int:
    """Delete sealed events that are older than `before`, by whole links. Return how many events were deleted.

    An anchor is added to the chain first; only then do the triggers allow the deletion. If the process is killed in
    between, the next run continues with the same anchor.
    """
    with transaction.atomic(using=trail.alias), trail.cursor() as cursor:
        if not locked(cursor):
            return 0
        anchor, added = _anchor(trail, before)
    if anchor is None:
        return 0
    if added:
        keep_head(trail, anchor)
    gone = 0
    while number := _delete_some(trail.events.filter(pk__lte=anchor.to_id)):
        gone += number
        seen(number)
    while _delete_some(trail.links.filter(pk__lte=anchor.purged_number or 0)):
        pass
    return gone


def _anchor(trail: Trail, before: datetime) -> tuple[Seal | None, bool]:
    """Return the anchor to purge by, and whether it is new."""
    current, links = newest_link(trail, Seal.ANCHOR), trail.links.filter(kind=Seal.ROWS)
    old = links.filter(number__gt=(current.purged_number or 0) if current else 0)
    first_young = links.filter(newest_at__gte=before).aggregate(number=Min("number"))["number"]
    if first_young is not None:
        old = old.filter(number__lt=first_young)
    cut, last = old.order_by("-number").first(), newest_link(trail)
    if cut is None or last is None:
        return current, False
    anchor = trail.link_model(
        number=last.number + 1,
        kind=Seal.ANCHOR,
        from_id=current.to_id + 1 if current else 1,
        to_id=cut.to_id,
        count=trail.events.filter(pk__lte=cut.to_id).count(),
        newest_at=cut.newest_at,
        purged_number=cut.number,
        digest=cut.mac,
        previous=last.mac,
    )
    return append(trail, anchor), True


def _delete_some(rows: QuerySet[Row]) -> int:
    return rows.filter(pk__in=rows.order_by("pk").values("pk")[:PURGED_AT_ONCE]).delete()[0]
