"""The hash chain over an audit trail: its links, and how they and the events below them are stored and read.

A link covers all events of a range of ids and carries SHA-256 over them, the MAC of the link before, and its own MAC
under the owner's data key. The owner of a database, without the key ring, can change rows and hashes as they like and
still not make a link that fits. Ranges join without a gap, so an event that is added later to a sealed range is found
as surely as one that is missing. `sealing` makes links, `verifying` checks them, `purging` lets go of old ones.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson
import structlog
from django.db import connections
from django.db.backends.utils import CursorWrapper

from identity_platform.crypto import keyed_digest

log = structlog.get_logger("identity.audit")

PLATFORM: Final = "platform"
# How many events a link covers at the most.
LINK_SIZE = 1000
GENESIS = bytes(32)
# One sealer or purger per database; advisory locks are a database's own.
CHAIN_LOCK = 7_215_010
LINK_COLUMNS = "number, kind, from_id, to_id, count, newest_at, purged_number, digest, previous, mac"

_EVENT = (
    "id, (extract(epoch FROM at) * 1000000)::bigint, action, outcome, actor_kind, actor_id, target_kind, target_id,"
    " address, request_id, details::text"
)

# Id, microseconds, and the other columns of `_EVENT`.
EventRow = tuple[int, int, *tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Trail:
    """One audit trail: whose it is, where its rows are, and the key of its chain."""

    owner: str
    alias: str
    events: str
    links: str
    key: bytes = field(repr=False)

    def cursor(self) -> CursorWrapper:
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


def locked(cursor: CursorWrapper) -> bool:
    """Take the chain until the transaction ends; False while another sealer or purger has it."""
    cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [CHAIN_LOCK])
    return bool(cursor.fetchone()[0])


def append(cursor: CursorWrapper, trail: Trail, link: Link) -> Link:
    """Store a link with its MAC; gives it as stored. The chain must be `locked`."""
    mac = link.signed_by(trail)
    values = [getattr(link, name.strip()) for name in LINK_COLUMNS.split(",")]
    values[-1] = mac
    places = ", ".join(["%s"] * len(values))
    cursor.execute(f"INSERT INTO {trail.links} ({LINK_COLUMNS}) VALUES ({places})", values)
    return Link(*values)


def keep_head(trail: Trail, link: Link) -> None:
    """Copy the newest link to the global database and to the log: both are out of reach of a tenant database's owner."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_chainhead AS head (owner, number, mac, sealed_at) VALUES (%s, %s, %s, now())"
            " ON CONFLICT (owner) DO UPDATE SET number = EXCLUDED.number, mac = EXCLUDED.mac, sealed_at = now()"
            " WHERE head.number < EXCLUDED.number",
            [trail.owner, link.number, link.mac],
        )
    log.info("audit_sealed", owner=trail.owner, number=link.number, to_id=link.to_id, mac=link.mac.hex())


def events_of(cursor: CursorWrapper, trail: Trail, from_id: int, to_id: int, most: int | None = None) -> list[EventRow]:
    """The events of a range of ids, as the columns that `digest_of` covers; at most `most`."""
    columns = _EVENT + (", tenant_id::text" if trail.owner == PLATFORM else "")
    cursor.execute(
        f"SELECT {columns} FROM {trail.events} WHERE id BETWEEN %s AND %s ORDER BY id LIMIT %s", [from_id, to_id, most]
    )
    return list(cursor.fetchall())


def digest_of(rows: list[EventRow]) -> bytes:
    """SHA-256 over the events in the order of their ids, each a JSON array of its columns on a line."""
    return hashlib.sha256(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)).digest()


def as_link(row: tuple[Any, ...]) -> Link:
    """A row of LINK_COLUMNS."""
    facts, secrets = row[:-3], [bytes(value) for value in row[-3:]]
    return Link(*facts, *secrets)


def newest_link(cursor: CursorWrapper, trail: Trail, kind: str | None = None) -> Link | None:
    """The link with the highest number, of all or of one kind."""
    where = "WHERE kind = %s" if kind else ""
    cursor.execute(
        f"SELECT {LINK_COLUMNS} FROM {trail.links} {where} ORDER BY number DESC LIMIT 1", [kind] if kind else []
    )
    row = cursor.fetchone()
    return as_link(row) if row else None


def links_from(trail: Trail, first: int) -> Iterator[Link]:
    """The links from that number on, read in pieces."""
    while True:
        with trail.cursor() as cursor:
            cursor.execute(
                f"SELECT {LINK_COLUMNS} FROM {trail.links} WHERE number >= %s ORDER BY number LIMIT %s",
                [first, LINK_SIZE],
            )
            found = [as_link(row) for row in cursor.fetchall()]
        yield from found
        if len(found) < LINK_SIZE:
            return
        first = found[-1].number + 1


def _microseconds(moment: datetime) -> int:
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + moment.microsecond


def head_of(trail: Trail) -> tuple[int, bytes]:
    """Number and MAC of the link that `keep_head` was last told of; number 0 for none."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT number, mac FROM audit_chainhead WHERE owner = %s", [trail.owner])
        row = cursor.fetchone()
    return (row[0], bytes(row[1])) if row else (0, GENESIS)
