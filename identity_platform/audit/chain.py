"""The hash chain over an audit trail: sealed in batches, so that writers never wait for each other.

A link covers all events of a range of ids and carries SHA-256 over them, the MAC of the link before, and its own MAC
under the owner's data key. Whoever owns the database, but not the key ring, can change rows and hashes as they like and
still not make a link that fits. Ranges join without a gap, so an event that is added later to a sealed range is found
as surely as one that is missing.

Which events may be sealed? Ids come from a sequence, and a transaction with a low id may commit after one with a high
id; a range that was sealed too early would then be short of an event for ever. The tables draw the transaction's number
before the id (migration 0004). So the sealer reads the sequence first and takes a transaction number second:
whoever holds an id up to that point has a lower number. As soon as no transaction below it runs any more, all events up
to that id are there, and the missing ids belong to transactions that failed. Transaction numbers are compared
within one run only and never stored: a trail that moves to another server stays verifiable.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import orjson
import structlog
from django.db import connections, transaction

from identity_platform.audit.models import Seal
from identity_platform.crypto import keyed_digest

log = structlog.get_logger("identity.audit")

PLATFORM: Final = "platform"
LINK_SIZE = 1000
PURGED_AT_ONCE = 2000
GENESIS = bytes(32)
# One sealer or purger per database; advisory locks are a database's own.
CHAIN_LOCK = 7_215_010
WAIT_SECONDS = 5.0

_EVENT = (
    "id, (extract(epoch FROM at) * 1000000)::bigint, action, outcome, actor_kind, actor_id, target_kind, target_id,"
    " address, request_id, details::text"
)
_LINK = "number, kind, from_id, to_id, count, newest_at, purged_number, digest, previous, mac"


@dataclass(frozen=True, slots=True)
class Trail:
    """One audit trail: whose it is, where its rows are, and the key of its chain."""

    owner: str
    alias: str
    events: str
    links: str
    key: bytes = field(repr=False)

    def cursor(self) -> Any:
        """A cursor in the trail's database; a tenant must be entered."""
        return connections[self.alias].cursor()


def tenant_trail(tenant_id: UUID, key: bytes) -> Trail:
    """The trail of a tenant, which must be entered; `key` is the tenant's data key."""
    return Trail(str(tenant_id), "tenant", "audit_tenantevent", "audit_tenantseal", key)


def platform_trail(key: bytes) -> Trail:
    """The platform's trail; `key` is the platform's data key."""
    return Trail(PLATFORM, "default", "audit_platformevent", "audit_platformseal", key)


@dataclass(frozen=True, slots=True)
class Link:
    """A row of the chain."""

    number: int
    kind: str
    from_id: int
    to_id: int
    count: int
    newest_at: datetime
    purged_number: int | None
    digest: bytes
    previous: bytes
    mac: bytes = b""

    def signed_by(self, trail: Trail) -> bytes:
        """The MAC that this link must carry."""
        content = orjson.dumps(
            [
                trail.owner,
                self.number,
                self.kind,
                self.from_id,
                self.to_id,
                self.count,
                _microseconds(self.newest_at),
                self.purged_number,
                self.digest.hex(),
                self.previous.hex(),
            ]
        )
        return keyed_digest(content, key=trail.key, purpose="audit chain")


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a run of the sealer did."""

    events: int
    links: int
    # A transaction that began before still runs, or another sealer is at work: the rest waits for the next run.
    held_back: bool = False


@dataclass(slots=True)
class Verdict:
    """What `verify` has found; no fault means that every sealed event stands as it was written."""

    owner: str
    events: int = 0
    links: int = 0
    unsealed: int = 0
    faults: list[str] = field(default_factory=list)


# --- sealing ---------------------------------------------------------------------------------------------------------


def seal(trail: Trail, *, wait: float = WAIT_SECONDS) -> Sealed:
    """Put every event that is certain by now under the chain; waits at most `wait` seconds for running transactions.

    Can be killed anywhere and run again, and by several at once. Must not be called inside a transaction.
    """
    if connections[trail.alias].in_atomic_block:
        raise RuntimeError("Sealing waits for other transactions, so it cannot be part of one.")
    with trail.cursor() as cursor:
        begun = _sealed_up_to(cursor, trail)
        cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {trail.events} WHERE id > %s)", [begun])
        if not cursor.fetchone()[0]:
            return Sealed(0, 0)
        cursor.execute(f"SELECT last_value FROM {trail.events}_id_seq")
        (certain,) = cursor.fetchone()
        # A number of our own. A snapshot's xmax will not do: it is one past the newest transaction that has ended, and
        # a running one may have a higher number.
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        (running_below,) = cursor.fetchone()
    if not _all_ended(trail, running_below, wait):
        return Sealed(0, 0, held_back=True)
    events = links = 0
    newest: Link | None = None
    while True:
        with transaction.atomic(using=trail.alias), trail.cursor() as cursor:
            alone = _locked(cursor)
            link = _seal_next(cursor, trail, certain) if alone else None
        if link is None:
            if newest is not None:
                _keep_head(trail, newest)
            return Sealed(events, links, held_back=not alone)
        newest, events, links = link, events + link.count, links + 1


def _all_ended(trail: Trail, running_below: int, wait: float) -> bool:
    deadline = time.monotonic() + wait
    while True:
        with trail.cursor() as cursor:
            cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= %s", [running_below])
            if cursor.fetchone()[0]:
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


def _locked(cursor: Any) -> bool:
    cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [CHAIN_LOCK])
    return bool(cursor.fetchone()[0])


def _seal_next(cursor: Any, trail: Trail, certain: int) -> Link | None:
    begun = _sealed_up_to(cursor, trail)
    rows = _events(cursor, trail, begun + 1, certain, LINK_SIZE)
    if not rows:
        return None
    last = _newest(cursor, trail)
    newest = max(row[1] for row in rows)
    return _append(
        cursor,
        trail,
        Link(
            number=last.number + 1 if last else 1,
            kind=Seal.ROWS,
            from_id=begun + 1,
            to_id=rows[-1][0],
            count=len(rows),
            newest_at=_moment(newest),
            purged_number=None,
            digest=_digest(rows),
            previous=last.mac if last else GENESIS,
        ),
    )


def _append(cursor: Any, trail: Trail, link: Link) -> Link:
    mac = link.signed_by(trail)
    values = [getattr(link, name.strip()) for name in _LINK.split(",")]
    values[-1] = mac
    places = ", ".join(["%s"] * len(values))
    cursor.execute(f"INSERT INTO {trail.links} ({_LINK}) VALUES ({places})", values)
    return Link(*values)


def _keep_head(trail: Trail, link: Link) -> None:
    """Copy the newest link to the global database and to the log: both are out of reach of a tenant database's owner."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_chainhead AS head (owner, number, mac, sealed_at) VALUES (%s, %s, %s, now())"
            " ON CONFLICT (owner) DO UPDATE SET number = EXCLUDED.number, mac = EXCLUDED.mac, sealed_at = now()"
            " WHERE head.number < EXCLUDED.number",
            [trail.owner, link.number, link.mac],
        )
    log.info("audit_sealed", owner=trail.owner, number=link.number, to_id=link.to_id, mac=link.mac.hex())


# --- reading ---------------------------------------------------------------------------------------------------------


def _events(cursor: Any, trail: Trail, from_id: int, to_id: int, most: int | None = None) -> list[Any]:
    columns = _EVENT + (", tenant_id::text" if trail.owner == PLATFORM else "")
    cursor.execute(
        f"SELECT {columns} FROM {trail.events} WHERE id BETWEEN %s AND %s ORDER BY id LIMIT %s", [from_id, to_id, most]
    )
    return list(cursor.fetchall())


def _digest(rows: list[Any]) -> bytes:
    """SHA-256 over the events in the order of their ids, each a JSON array of its columns on a line."""
    return hashlib.sha256(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)).digest()


def _link(row: Any) -> Link:
    facts, secrets = row[:-3], [bytes(value) for value in row[-3:]]
    return Link(*facts, *secrets)


def _newest(cursor: Any, trail: Trail, kind: str | None = None) -> Link | None:
    where = "WHERE kind = %s" if kind else ""
    cursor.execute(f"SELECT {_LINK} FROM {trail.links} {where} ORDER BY number DESC LIMIT 1", [kind] if kind else [])
    row = cursor.fetchone()
    return _link(row) if row else None


def _sealed_up_to(cursor: Any, trail: Trail) -> int:
    last = _newest(cursor, trail, Seal.ROWS) or _newest(cursor, trail, Seal.ANCHOR)
    return last.to_id if last else 0


def _links(trail: Trail, first: int) -> Iterator[Link]:
    while True:
        with trail.cursor() as cursor:
            cursor.execute(
                f"SELECT {_LINK} FROM {trail.links} WHERE number >= %s ORDER BY number LIMIT %s", [first, LINK_SIZE]
            )
            found = [_link(row) for row in cursor.fetchall()]
        yield from found
        if len(found) < LINK_SIZE:
            return
        first = found[-1].number + 1


def _microseconds(moment: datetime) -> int:
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + moment.microsecond


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)


# --- verifying -------------------------------------------------------------------------------------------------------


def verify(trail: Trail, *, seen: Callable[[int], None] = lambda events: None) -> Verdict:
    """Read the whole trail and compare it with its chain; `seen` is told how many events each link has brought.

    Finds changed, removed, added and exchanged events, changed, removed and forged links, and a chain whose end was cut
    off. Events that no link covers yet are counted, not judged.
    """
    while True:
        with trail.cursor() as cursor:
            anchor = _newest(cursor, trail, Seal.ANCHOR)
        verdict = _verified(trail, anchor, seen)
        with trail.cursor() as cursor:
            # A purge that ran meanwhile has taken links away from under the reader.
            if _newest(cursor, trail, Seal.ANCHOR) == anchor:
                return verdict


def _verified(trail: Trail, anchor: Link | None, seen: Callable[[int], None]) -> Verdict:
    verdict = Verdict(trail.owner)
    # Before the walk: a link that is sealed meanwhile is newer than this head.
    head_number, head_mac = _head(trail)
    number, previous, from_id = 1, GENESIS, 1
    if anchor is not None:
        # What the anchor says is believed here and proven below, where its own MAC is checked like any other's.
        number, previous, from_id = (anchor.purged_number or 0) + 1, anchor.digest, anchor.to_id + 1
    for link in _links(trail, number):
        if link.number != number:
            verdict.faults.append(f"links {number} to {link.number - 1} are missing")
        elif link.previous != previous:
            verdict.faults.append(f"link {link.number} does not join the link before it")
        if link.signed_by(trail) != link.mac:
            verdict.faults.append(f"link {link.number} was changed, or was not made by this platform")
        if link.kind == Seal.ROWS:
            if link.number == number and link.from_id != from_id:
                verdict.faults.append(f"link {link.number} does not begin where the one before it ends")
            _compare(trail, link, verdict)
            seen(link.count)
            from_id = link.to_id + 1
        number, previous = link.number + 1, link.mac
        if link.number == head_number and link.mac != head_mac:
            verdict.faults.append(f"link {link.number} is not the one that was sealed")
        verdict.links += 1
    with trail.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {trail.events} WHERE id >= %s", [from_id])
        (verdict.unsealed,) = cursor.fetchone()
    if head_number >= number:
        verdict.faults.append(f"links {number} to {head_number} are missing: the chain's end was cut off")
    return verdict


def _compare(trail: Trail, link: Link, verdict: Verdict) -> None:
    with trail.cursor() as cursor:
        rows = _events(cursor, trail, link.from_id, link.to_id)
    verdict.events += len(rows)
    where = f"events {link.from_id} to {link.to_id} (link {link.number})"
    if len(rows) < link.count:
        verdict.faults.append(f"{where}: {link.count - len(rows)} removed")
    elif len(rows) > link.count:
        verdict.faults.append(f"{where}: {len(rows) - link.count} added")
    elif _digest(rows) != link.digest:
        verdict.faults.append(f"{where}: at least one was changed or exchanged")


def _head(trail: Trail) -> tuple[int, bytes]:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT number, mac FROM audit_chainhead WHERE owner = %s", [trail.owner])
        row = cursor.fetchone()
    return (row[0], bytes(row[1])) if row else (0, GENESIS)


def accept_end(trail: Trail) -> int:
    """Take the newest link that is there as the chain's end; gives its number. For a tenant restored from a backup.

    Only a person can know that the events behind it were lost to a restoration and not to a hand, so no other code
    calls it.
    """
    with trail.cursor() as cursor:
        last = _newest(cursor, trail)
    with connections["default"].cursor() as cursor:
        cursor.execute("DELETE FROM audit_chainhead WHERE owner = %s", [trail.owner])
    if last is None:
        return 0
    _keep_head(trail, last)
    return last.number


# --- retention -------------------------------------------------------------------------------------------------------


def purge(trail: Trail, *, before: datetime, seen: Callable[[int], None] = lambda events: None) -> int:
    """Let go of sealed events that are older than `before`, by whole links; gives how many events went.

    An anchor joins the chain first and says up to where; only then do the triggers let the rows go. Killed in between,
    the next run goes on with the same anchor.
    """
    with transaction.atomic(using=trail.alias), trail.cursor() as cursor:
        if not _locked(cursor):
            return 0
        anchor, added = _anchor(cursor, trail, before)
    if anchor is None:
        return 0
    if added:
        _keep_head(trail, anchor)
    gone = 0
    while number := _delete_some(trail, trail.events, "id", anchor.to_id):
        gone += number
        seen(number)
    while _delete_some(trail, trail.links, "number", anchor.purged_number or 0):
        pass
    return gone


def _anchor(cursor: Any, trail: Trail, before: datetime) -> tuple[Link | None, bool]:
    """The anchor to purge by, and whether it is new."""
    standing = _newest(cursor, trail, Seal.ANCHOR)
    cursor.execute(
        f"SELECT {_LINK} FROM {trail.links} WHERE kind = %s AND number > %s AND number < coalesce("
        f"(SELECT min(number) FROM {trail.links} WHERE kind = %s AND newest_at >= %s), 9223372036854775807)"
        " ORDER BY number DESC LIMIT 1",
        [Seal.ROWS, (standing.purged_number or 0) if standing else 0, Seal.ROWS, before],
    )
    row = cursor.fetchone()
    if row is None:
        return standing, False
    cut, last = _link(row), _newest(cursor, trail)
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
    return _append(cursor, trail, anchor), True


def _delete_some(trail: Trail, table: str, column: str, upto: int) -> int:
    with trail.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {table} WHERE {column} IN"
            f" (SELECT {column} FROM {table} WHERE {column} <= %s ORDER BY {column} LIMIT %s)",
            [upto, PURGED_AT_ONCE],
        )
        return int(cursor.rowcount)
