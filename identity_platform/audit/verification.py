from collections.abc import Callable
from dataclasses import dataclass, field

from identity_platform.audit.chain import (
    GENESIS,
    Trail,
    digest_of,
    events_of,
    head_of,
    keep_head,
    links_from,
    newest_link,
)
from identity_platform.audit.models import ChainHead, Seal


@dataclass(slots=True)
class Verdict:
    """Result of `verify`. No fault means that every sealed event is as it was written."""

    owner: str
    events: int = 0
    links: int = 0
    unsealed: int = 0
    faults: list[str] = field(default_factory=list)


def verify(trail: Trail, *, seen: Callable[[int], None] = lambda events: None) -> Verdict:
    """Read the whole trail and compare it with its chain; `seen` is called with the number of events of each link.

    Finds changed, removed, added and exchanged events, events below the chain, changed, removed and forged links, and a
    chain whose end was cut off. Events that no link covers yet are counted, not judged.
    """
    while True:
        anchor = newest_link(trail, Seal.ANCHOR)
        verdict = _verified(trail, anchor, seen)
        # A purge that ran meanwhile has deleted links that were not read yet.
        if newest_link(trail, Seal.ANCHOR) == anchor:
            return verdict


def _verified(trail: Trail, anchor: Seal | None, seen: Callable[[int], None]) -> Verdict:
    verdict = Verdict(trail.owner)
    # Before the walk: a link that is sealed meanwhile is newer than this head.
    head_number, head_mac = head_of(trail)
    number, previous, from_id = 1, GENESIS, 1
    if anchor is not None:
        # What the anchor says is believed here and proven below, where its own MAC is checked like any other's.
        number, previous, from_id = (anchor.purged_number or 0) + 1, bytes(anchor.digest), anchor.to_id + 1
    if strays := _strays(trail, from_id):
        verdict.faults.append(f"{strays} events below event {from_id}, where the chain begins: no link covers them")
    for link in links_from(trail, number):
        if link.number != number:
            verdict.faults.append(f"links {number} to {link.number - 1} are missing")
        elif link.previous != previous:
            verdict.faults.append(f"link {link.number} does not join the link before it")
        if trail.mac_of(link) != link.mac:
            verdict.faults.append(f"link {link.number} was changed, or was not made by this platform")
        if link.kind == Seal.ROWS:
            if link.number == number and link.from_id != from_id:
                verdict.faults.append(f"link {link.number} does not begin where the one before it ends")
            _compare(trail, link, verdict)
            seen(link.count)
            from_id = link.to_id + 1
        number, previous = link.number + 1, bytes(link.mac)
        if link.number == head_number and link.mac != head_mac:
            verdict.faults.append(f"link {link.number} is not the one that was sealed")
        verdict.links += 1
    verdict.unsealed = trail.events.filter(pk__gte=from_id).count()
    if head_number >= number:
        verdict.faults.append(f"links {number} to {head_number} are missing: the chain's end was cut off")
    return verdict


def _strays(trail: Trail, begins: int) -> int:
    """Return how many events are below the chain's first event, without those that an unfinished purge has left.

    A purge deletes the events first and their links last, so what it has left is covered by genuine links.
    """
    below = trail.events.filter(pk__lt=begins)
    number = below.count()
    if not number:
        return 0
    for link in trail.links.filter(kind=Seal.ROWS, to_id__lt=begins):
        if trail.mac_of(link) == link.mac:
            number -= min(link.count, below.filter(pk__range=(link.from_id, link.to_id)).count())
    return number


def _compare(trail: Trail, link: Seal, verdict: Verdict) -> None:
    with trail.cursor() as cursor:
        rows = events_of(cursor, trail, link.from_id, link.to_id)
    verdict.events += len(rows)
    where = f"events {link.from_id} to {link.to_id} (link {link.number})"
    if len(rows) < link.count:
        verdict.faults.append(f"{where}: {link.count - len(rows)} removed")
    elif len(rows) > link.count:
        verdict.faults.append(f"{where}: {len(rows) - link.count} added")
    elif digest_of(rows) != link.digest:
        verdict.faults.append(f"{where}: at least one was changed or exchanged")


def accept_end(trail: Trail) -> int:
    """Accept the newest existing link as the end of the chain and return its number. For a tenant restored from a backup.

    Only an operator can know that the later events were lost by a restoration and not by an attack, so no other code
    calls it.
    """
    last = newest_link(trail)
    ChainHead.objects.filter(pk=trail.owner).delete()
    if last is None:
        return 0
    keep_head(trail, last)
    return last.number
