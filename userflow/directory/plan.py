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

    def told(self) -> dict[str, Any]:
        """What becomes of the user, with the names of the members that change."""
        present = {"email": self.person.email, "name": self.person.name, "metadata": self.person.metadata}
        after = {"email": self.email, "name": self.name, "metadata": self.metadata}
        return {**after, "changed": sorted(member for member in after if after[member] != present[member])}


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
    # Switched off by a run before and on again by an admin since: what that run did is over.
    settled: list[Person] = field(default_factory=list)
    # With the code of the reason.
    skipped: list[tuple[Entry, str]] = field(default_factory=list)
    # Whose address somebody else has at the moment; by the end of the run it may have become free.
    waiting: list[Entry] = field(default_factory=list)

    def touched(self) -> list[UUID]:
        """The users who would be written to."""
        linked = [*self.back, *self.adopted, *self.settled]
        return sorted({*(change.person.user_id for change in self.changed), *(person.user_id for person in linked)})

    def writes(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.new or self.changed or self.back or self.adopted or self.settled)


@dataclass(slots=True)
class Handed:
    """Addresses that go from hand to hand, by their keys.

    Only a dry run counts those that became free: it carries them from page to page, as no table tells. In the tables they
    are free for the next page, but not within one statement, where a unique index looks at row after row.
    """

    dry_run: bool = False
    claimed: set[str] = field(default_factory=set)
    vacated: set[str] = field(default_factory=set)


def decide(
    entries: Iterable[Entry],
    people: Mapping[str, Person],
    holders: Mapping[str, UUID],
    *,
    config_id: UUID,
    mapping: dict[str, Any],
    handed: Handed | None = None,
    last: bool = False,
) -> Plan:
    """Decide about a page's objects.

    `people` has the linked users by external id, `holders` who has which address (by its key); `handed` carries a dry
    run's addresses from page to page. Unless this is the `last` look at them, objects whose address is taken wait:
    whoever has it may be renamed later on. An address that another user has is never taken over and never a reason to
    merge: whoever can name an address in the directory would otherwise become that user.
    """
    plan, handed = Plan(), handed or Handed()
    for entry in entries:
        person = people.get(entry.external_id)
        if person is None:
            _decide_about_stranger(plan, entry, holders, handed, last=last)
            continue
        if person.config_id != config_id:
            plan.adopted.append(person)
        if person.active and person.switched_off:
            plan.settled.append(person)
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
        _decide_about_change(plan, entry, person, holders, handed, mapping, last=last)
    return plan


def _is_taken(key: str, by: UUID | None, holders: Mapping[str, UUID], handed: Handed) -> bool:
    if key in handed.claimed:
        return True
    return key in holders and holders[key] != by and key not in handed.vacated


def _decide_about_stranger(
    plan: Plan, entry: Entry, holders: Mapping[str, UUID], handed: Handed, *, last: bool
) -> None:
    if entry.removed:
        return
    if entry.problem:
        plan.skipped.append((entry, entry.problem))
    elif not entry.enabled:
        # Nobody is made only to be switched off.
        plan.skipped.append((entry, OFF))
    elif not _is_taken(entry.email_key, None, holders, handed):
        handed.claimed.add(entry.email_key)
        plan.new.append(entry)
    elif last:
        plan.skipped.append((entry, TAKEN))
    else:
        plan.waiting.append(entry)


def _decide_about_change(
    plan: Plan,
    entry: Entry,
    person: Person,
    holders: Mapping[str, UUID],
    handed: Handed,
    mapping: dict[str, Any],
    *,
    last: bool,
) -> None:
    email, key = entry.email, entry.email_key
    if key != person.email_key:
        if not _is_taken(key, person.user_id, holders, handed):
            handed.claimed.add(key)
            if handed.dry_run:
                handed.vacated.add(person.email_key)
        elif last:
            # The rest of the object still counts; the address stays as it was.
            plan.skipped.append((entry, TAKEN))
            email, key = person.email, person.email_key
        else:
            plan.waiting.append(entry)
            return
    change = Change(person, email, key, entry.name, with_metadata(person.metadata, entry, mapping))
    if (change.email, change.name, change.metadata) != (person.email, person.name, person.metadata):
        plan.changed.append(change)
