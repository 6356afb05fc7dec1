"""What a page of a directory means for the people who are here: pure decisions, no tables, no network."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from userflow.directory.objects import TAKEN, Entry, with_metadata

OFF: Final = "disabled"


@dataclass(frozen=True, slots=True)
class Person:
    """An end user who is linked to an object of the directory."""

    link_id: int
    config_id: UUID
    external_id: str
    switched_off: bool
    user_id: UUID
    email: str
    email_key: str
    name: str
    active: bool
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A linked user as the directory wants it."""

    person: Person
    email: str
    email_key: str
    name: str
    metadata: dict[str, Any]

    @property
    def moves(self) -> bool:
        """Whether the address is another one, not only spelt otherwise."""
        return self.email_key != self.person.email_key


@dataclass(slots=True)
class Plan:
    """The decisions about one page."""

    new: list[Entry] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)
    # Switched off by a run before, and active in the directory again.
    back: list[Person] = field(default_factory=list)
    # The directory says that they are disabled or gone.
    leaving: list[Person] = field(default_factory=list)
    # Linked to a configuration that is no more; the object is the same one.
    adopted: list[Person] = field(default_factory=list)
    # With the code of the reason.
    skipped: list[tuple[Entry, str]] = field(default_factory=list)
    # Whose address somebody else has at the moment; by the end of the run it may have become free.
    waiting: list[Entry] = field(default_factory=list)

    def touched(self) -> list[UUID]:
        """The users who would be written to."""
        return sorted({*(c.person.user_id for c in self.changed), *(p.user_id for p in [*self.back, *self.adopted])})

    def writes(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.new or self.changed or self.back or self.adopted)


def decide(
    entries: Iterable[Entry],
    people: Mapping[str, Person],
    holders: Mapping[str, UUID],
    *,
    config_id: UUID,
    mapping: dict[str, Any],
    claimed: set[str] | None = None,
    last: bool = False,
) -> Plan:
    """Decide about a page's objects.

    `people` has the linked users by external id, `holders` who has which address (by its key), `claimed` the keys that a
    dry run has given out on earlier pages, as they are in no table (it grows). Unless this is the `last` look at them,
    objects whose address is taken wait: whoever has it may be renamed on a later page. An address that another
    user has is never taken over and never a reason to merge: whoever can name an address in the directory would
    otherwise become that user.
    """
    plan = Plan()
    claimed = set() if claimed is None else claimed
    for entry in entries:
        person = people.get(entry.external_id)
        if person is None:
            _decide_about_stranger(plan, entry, holders, claimed, last=last)
            continue
        if person.config_id != config_id:
            plan.adopted.append(person)
        if not entry.enabled:
            if person.active:
                plan.leaving.append(person)
        elif not person.active and person.switched_off and not entry.problem:
            plan.back.append(person)
        if entry.removed:
            continue
        if entry.problem:
            plan.skipped.append((entry, entry.problem))
            continue
        _decide_about_change(plan, entry, person, holders, claimed, mapping, last=last)
    return plan


def _decide_about_stranger(
    plan: Plan, entry: Entry, holders: Mapping[str, UUID], claimed: set[str], *, last: bool
) -> None:
    if entry.removed:
        return
    if entry.problem:
        plan.skipped.append((entry, entry.problem))
    elif not entry.enabled:
        # Nobody is made only to be switched off.
        plan.skipped.append((entry, OFF))
    elif entry.email_key in holders or entry.email_key in claimed:
        if last:
            plan.skipped.append((entry, TAKEN))
        else:
            plan.waiting.append(entry)
    else:
        claimed.add(entry.email_key)
        plan.new.append(entry)


def _decide_about_change(
    plan: Plan,
    entry: Entry,
    person: Person,
    holders: Mapping[str, UUID],
    claimed: set[str],
    mapping: dict[str, Any],
    *,
    last: bool,
) -> None:
    email, key = entry.email, entry.email_key
    taken = holders.get(key, person.user_id) != person.user_id or key in claimed
    if taken and not last:
        plan.waiting.append(entry)
        return
    if taken:
        # The rest of the object still counts; the address stays as it was.
        plan.skipped.append((entry, TAKEN))
        email, key = person.email, person.email_key
    elif key != person.email_key:
        claimed.add(key)
    change = Change(person, email, key, entry.name, with_metadata(person.metadata, entry, mapping))
    if (change.email, change.name, change.metadata) != (person.email, person.name, person.metadata):
        plan.changed.append(change)
