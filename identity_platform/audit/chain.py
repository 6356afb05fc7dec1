"""The hash chain over an audit trail: its links, and how they and the events below them are stored and read.

A link covers all events of a range of ids and carries SHA-256 over them, the MAC of the link before, and its own MAC
under the owner's data key. The owner of a database, without the key ring, can change rows and hashes as they like and
still not make a link that fits. Ranges join without a gap, so an event that is added later to a sealed range is found
as surely as one that is missing. `sealing` makes links, `verification` checks and `purge` drops them.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

import orjson
import structlog
from django.db import connections
from django.db.backends.utils import CursorWrapper
from django.db.models import QuerySet

from identity_platform.audit.models import (
    AuditEvent,
    ChainHead,
    PlatformEvent,
    PlatformSeal,
    Seal,
    TenantEvent,
    TenantSeal,
)
from identity_platform.crypto import keyed_digest
from identity_platform.postgresql.statements import execute

log = structlog.get_logger("identity.audit")

PLATFORM: Final = "platform"
# How many events a link covers at the most.
LINK_SIZE = 1000
GENESIS = bytes(32)
# One sealer or purger per database; advisory locks are a database's own.
CHAIN_LOCK = 7_215_010
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
    event_model: type[AuditEvent]
    link_model: type[Seal]
    key: bytes = field(repr=False)

    def cursor(self) -> CursorWrapper:
        """Return a cursor in the trail's database; a tenant must be entered."""
        return connections[self.alias].cursor()

    @property
    def events(self) -> QuerySet[AuditEvent]:
        return self.event_model._default_manager.using(self.alias)

    @property
    def links(self) -> QuerySet[Seal]:
        return self.link_model._default_manager.using(self.alias)

    def mac_of(self, link: Seal) -> bytes:
        """Return the MAC that the link must carry."""
        content = orjson.dumps(
            [
                self.owner,
                link.number,
                link.kind,
                link.from_id,
                link.to_id,
                link.count,
                _microseconds(link.newest_at),
                link.purged_number,
                link.digest.hex(),
                link.previous.hex(),
            ]
        )
        return keyed_digest(content, key=self.key, purpose="audit chain")


def tenant_trail(tenant_id: UUID, key: bytes) -> Trail:
    """The trail of a tenant, which must be entered; `key` is the tenant's data key."""
    return Trail(str(tenant_id), "tenant", TenantEvent, TenantSeal, key)


def platform_trail(key: bytes) -> Trail:
    """The platform's trail; `key` is the platform's data key."""
    return Trail(PLATFORM, "default", PlatformEvent, PlatformSeal, key)


def locked(cursor: CursorWrapper) -> bool:
    """Take the chain until the transaction ends; False while another sealer or purger has it."""
    cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [CHAIN_LOCK])
    return bool(cursor.fetchone()[0])


def append(trail: Trail, link: Seal) -> Seal:
    """Store a link with its MAC and return it. The chain must be `locked`."""
    link.mac = trail.mac_of(link)
    link.save(using=trail.alias, force_insert=True)
    return link


def keep_head(trail: Trail, link: Seal) -> None:
    """Copy the newest link to the global database and to the log: both are out of reach of a tenant database's owner."""
    execute(
        "default",
        "INSERT INTO audit_chainhead AS head (owner, number, mac, sealed_at) VALUES (%s, %s, %s, now())"
        " ON CONFLICT (owner) DO UPDATE SET number = EXCLUDED.number, mac = EXCLUDED.mac, sealed_at = now()"
        " WHERE head.number < EXCLUDED.number",
        [trail.owner, link.number, bytes(link.mac)],
    )
    log.info("audit_sealed", owner=trail.owner, number=link.number, to_id=link.to_id, mac=link.mac.hex())


def events_of(cursor: CursorWrapper, trail: Trail, from_id: int, to_id: int, most: int | None = None) -> list[EventRow]:
    """The events of a range of ids, as the columns that `digest_of` covers; at most `most`."""
    columns = _EVENT + (", tenant_id::text" if trail.owner == PLATFORM else "")
    cursor.execute(
        f"SELECT {columns} FROM {trail.event_model._meta.db_table} WHERE id BETWEEN %s AND %s ORDER BY id LIMIT %s",
        [from_id, to_id, most],
    )
    return list(cursor.fetchall())


def last_id(cursor: CursorWrapper, trail: Trail) -> int:
    """Return the last id that an event of the trail has got, whose transaction may still run or have failed."""
    cursor.execute(f"SELECT last_value FROM {trail.event_model._meta.db_table}_id_seq")
    (number,) = cursor.fetchone()
    return int(number)


def new_transaction_number(cursor: CursorWrapper) -> int:
    """Return a new number of a transaction, above those of all transactions that have one."""
    # A snapshot's xmax will not do: it is one past the newest transaction that has ended, and a running one may have a higher
    # number.
    cursor.execute("SELECT pg_current_xact_id()::text::bigint")
    (number,) = cursor.fetchone()
    return int(number)


def have_ended(cursor: CursorWrapper, transaction_number: int) -> bool:
    """Return whether all transactions below this number have ended."""
    cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= %s", [transaction_number])
    return bool(cursor.fetchone()[0])


def digest_of(rows: list[EventRow]) -> bytes:
    """SHA-256 over the events in the order of their ids, each a JSON array of its columns on a line."""
    return hashlib.sha256(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)).digest()


def newest_link(trail: Trail, kind: str | None = None) -> Seal | None:
    """Return the link with the highest number, of all or of one kind."""
    links = trail.links.filter(kind=kind) if kind else trail.links
    return links.order_by("-number").first()


def links_from(trail: Trail, first: int) -> Iterator[Seal]:
    """Return the links from that number on, read in batches."""
    while links := list(trail.links.filter(number__gte=first).order_by("number")[:LINK_SIZE]):
        yield from links
        first = links[-1].number + 1


def _microseconds(moment: datetime) -> int:
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + moment.microsecond


def head_of(trail: Trail) -> tuple[int, bytes]:
    """Number and MAC of the link that `keep_head` was last told of; number 0 for none."""
    head = ChainHead.objects.filter(pk=trail.owner).first()
    return (head.number, bytes(head.mac)) if head else (0, GENESIS)
