"""Decide what a page of directory objects means for the tenant's users: pure functions, no tables, no network."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from userflow.accounts.sources import DIRECTORY_FIELDS
from userflow.directory.objects import TAKEN, AttributeMapping, Entry, with_mapped

OFF: Final = "disabled"


@dataclass(frozen=True, slots=True)
class Person:
    """An end user who is linked to a directory object."""

    link_id: int
    config_id: UUID
    external_id: str
    switched_off: bool
    user_id: UUID
    email: str
    email_key: str
    name: str
    active: bool
    metadata: dict[str, object]
    app_metadata: dict[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """The new values of a linked user."""

    person: Person
    email: str
    email_key: str
    name: str
    metadata: dict[str, object]
    app_metadata: dict[str, object]

    @property
    def changes_address(self) -> bool:
        """Return whether the address changes, beyond its spelling."""
        return self.email_key != self.person.email_key

    def event_data(self) -> dict[str, object]:
        """Return the new values, with the names of the changed fields."""
        after = {name: getattr(self, name) for name in DIRECTORY_FIELDS}
        return {**after, "changed": [name for name in DIRECTORY_FIELDS if after[name] != getattr(self.person, name)]}


@dataclass(slots=True)
class Plan:
    new: list[Entry] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)
    # Deactivated by an earlier run, and active in the directory again.
    back: list[Person] = field(default_factory=list)
    # Disabled in the directory, or gone.
    leaving: list[Person] = field(default_factory=list)
    # Linked to a deleted configuration that had the same object.
    adopted: list[Person] = field(default_factory=list)
    # Deactivated by an earlier run and activated by an admin since.
    reactivated_here: list[Person] = field(default_factory=list)
    # With the error code.
    skipped: list[tuple[Entry, str]] = field(default_factory=list)
    # Their address is taken at the moment, and may become free during the run.
    waiting: list[Entry] = field(default_factory=list)

    def touched(self) -> list[UUID]:
        """Return the ids of users that the plan changes."""
        linked = [*self.back, *self.adopted, *self.reactivated_here]
        return sorted({*(change.person.user_id for change in self.changed), *(person.user_id for person in linked)})

    def writes(self) -> bool:
        """Return whether the plan changes anything."""
        return bool(self.new or self.changed or self.back or self.adopted or self.reactivated_here)


@dataclass(slots=True)
class Handed:
    """Addresses (by key) that pass from one user to another.

    Only a dry run counts vacated addresses and carries them from page to page. In the tables they are free for the next
    page, but not within one statement, as the unique index is checked row by row.
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
    mapping: AttributeMapping,
    handed: Handed | None = None,
    last: bool = False,
) -> Plan:
    """Decide about the objects of one page.

    Args:
        people: the linked users by external id.
        holders: the user who has an address, by its key.
        handed: the addresses of a dry run, carried from page to page.
        last: whether objects with a taken address are skipped; otherwise they wait, as its user may be renamed later.
    """
    plan, handed = Plan(), handed or Handed()
    for entry in entries:
        person = people.get(entry.external_id)
        if person is None:
            _decide_about_unlinked(plan, entry, holders, handed, last=last)
            continue
        if person.config_id != config_id:
            plan.adopted.append(person)
        _decide_about_status(plan, entry, person)
        if entry.removed:
            continue
        if entry.problem:
            plan.skipped.append((entry, entry.problem))
        else:
            _decide_about_change(plan, entry, person, holders, handed, mapping, last=last)
    return plan


def _decide_about_status(plan: Plan, entry: Entry, person: Person) -> None:
    if person.active and person.switched_off:
        plan.reactivated_here.append(person)
    if not entry.enabled:
        if person.active:
            plan.leaving.append(person)
    elif not person.active and person.switched_off and not entry.problem:
        plan.back.append(person)


def _is_taken(key: str, by: UUID | None, holders: Mapping[str, UUID], handed: Handed) -> bool:
    """Return whether another user has the address. It is never taken over, or directory admins could become any user."""
    if key in handed.claimed:
        return True
    return key in holders and holders[key] != by and key not in handed.vacated


def _decide_about_unlinked(
    plan: Plan, entry: Entry, holders: Mapping[str, UUID], handed: Handed, *, last: bool
) -> None:
    if entry.removed:
        return
    if entry.problem:
        plan.skipped.append((entry, entry.problem))
    elif not entry.enabled:
        # A disabled object creates no user.
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
    mapping: AttributeMapping,
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
            # The other fields are still updated; the address stays.
            plan.skipped.append((entry, TAKEN))
            email, key = person.email, person.email_key
        else:
            plan.waiting.append(entry)
            return
    metadata = with_mapped(person.metadata, entry.metadata, mapping["metadata"])
    app_metadata = with_mapped(person.app_metadata, entry.app_metadata, mapping.get("app_metadata", {}))
    change = Change(person, email, key, entry.name, metadata, app_metadata)
    if change.event_data()["changed"]:
        plan.changed.append(change)
