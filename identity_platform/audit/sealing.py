"""Sealing: events are put under the chain in batches, so that writers never wait for each other.

Which events may be sealed? Ids come from a sequence, and a transaction with a low id may commit after one with a high
id; a range that was sealed too early would then be short of an event for ever. The tables draw the transaction's number
before the id (migration 0004). So the sealer reads the sequence first and takes a transaction number second:
every transaction with an id up to that point has a lower number. As soon as no transaction below it is running, all events up
to that id are there, and the missing ids belong to transactions that failed. Transaction numbers are compared
within one run only and never stored: a trail that moves to another server stays verifiable.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper

from identity_platform.audit.chain import (
    GENESIS,
    LINK_SIZE,
    Trail,
    append,
    digest_of,
    events_of,
    have_ended,
    keep_head,
    last_id,
    locked,
    new_transaction_number,
    newest_link,
)
from identity_platform.audit.models import Seal

WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Sealed:
    """Result of a run of the sealer."""

    events: int
    links: int
    # A transaction that began before still runs, or another sealer is at work: the rest waits for the next run.
    held_back: bool = False


def seal(trail: Trail, *, wait: float = WAIT_SECONDS) -> Sealed:
    """Seal every event that is certain by now. Wait at most `wait` seconds for running transactions.

    Can be killed anywhere and run again, and by several at once. Must not be called inside a transaction.
    """
    if connections[trail.alias].in_atomic_block:
        raise RuntimeError("Sealing waits for other transactions, so it cannot be part of one.")
    with trail.cursor() as cursor:
        if not trail.events.filter(pk__gt=_sealed_up_to(trail)).exists():
            return Sealed(0, 0)
        certain = last_id(cursor, trail)
        running_below = new_transaction_number(cursor)
    if not _all_ended(trail, running_below, wait):
        return Sealed(0, 0, held_back=True)
    events = links = 0
    newest: Seal | None = None
    while True:
        with transaction.atomic(using=trail.alias), trail.cursor() as cursor:
            alone = locked(cursor)
            link = _seal_next(cursor, trail, certain) if alone else None
        if link is None:
            if newest is not None:
                keep_head(trail, newest)
            return Sealed(events, links, held_back=not alone)
        newest, events, links = link, events + link.count, links + 1


def _all_ended(trail: Trail, running_below: int, wait: float) -> bool:
    deadline = time.monotonic() + wait
    while True:
        with trail.cursor() as cursor:
            if have_ended(cursor, running_below):
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


def _seal_next(cursor: CursorWrapper, trail: Trail, certain: int) -> Seal | None:
    begun = _sealed_up_to(trail)
    rows = events_of(cursor, trail, begun + 1, certain, LINK_SIZE)
    if not rows:
        return None
    last = newest_link(trail)
    return append(
        trail,
        trail.link_model(
            number=last.number + 1 if last else 1,
            kind=Seal.ROWS,
            from_id=begun + 1,
            to_id=rows[-1][0],
            count=len(rows),
            newest_at=_moment(max(row[1] for row in rows)),
            purged_number=None,
            digest=digest_of(rows),
            previous=last.mac if last else GENESIS,
        ),
    )


def _sealed_up_to(trail: Trail) -> int:
    last = newest_link(trail, Seal.ROWS) or newest_link(trail, Seal.ANCHOR)
    return last.to_id if last else 0


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)
