"""A synchronisation: bring the tenant's users in line with a directory, a page at a time.

Each page is one transaction in the tenant's database, so a killed run leaves whole pages behind; the next run reads
them again and finds nothing to change.
Deactivation comes last: only after a full read is it known who is gone, and how many.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from django.db import IntegrityError
from django.db.models.functions import Lower

from tenants.entering.context import in_tenant, tenant_atomic
from userflow.accounts.models import Group
from userflow.directory import people
from userflow.directory.models import INCOMPLETE, REFUSED, SUCCEEDED, DirectoryConfig, DirectoryRun
from userflow.directory.objects import MESSAGES, NO_GROUP, TAKEN, DirectoryObject, DirectoryReader, Entry, to_entry
from userflow.directory.plan import OFF, Handed, Person, Plan, decide
from userflow.directory.runs import Tally, beat
from userflow.errors import DirectoryFailed

AT_ONCE: Final = 500
TRIES: Final = 4
MOST_OBJECTS: Final = 1_000_000
# Members of all mapped groups together, for directories that list members by group.
MOST_MEMBERS: Final = 1_000_000
# After so many objects with taken addresses, further ones do not wait for their address to become free.
MOST_WAITING: Final = 10_000
# So few leavers never stop a run (unless the limit is 0 %): in a directory of ten, one leaver is 10 %.
ALWAYS_MAY_LEAVE: Final = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `cursor` is the start of the next read; None keeps the present one."""

    state: str
    reason: str = ""
    cursor: str | None = None


@dataclass(slots=True)
class Synchronisation:
    """One run over one directory. `deadline` (monotonic clock) ends it between two pages."""

    config: DirectoryConfig
    run: DirectoryRun
    reading: DirectoryReader
    client_id: UUID
    # The tenant's configurations; links of other ids belong to deleted ones.
    living: list[UUID]
    force: bool = False
    deadline: float | None = None
    progress: Callable[[int], None] = lambda objects_read: None
    tally: Tally = field(default_factory=Tally)
    _seen: set[str] = field(default_factory=set)
    _waiting: list[Entry] = field(default_factory=list)
    _leaving: dict[UUID, Person] = field(default_factory=dict)
    _handed: Handed = field(default_factory=lambda: Handed(dry_run=True))
    _members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _left_over: bool = False
    _late: bool = False

    def run_to_end(self) -> Outcome:
        """Run. Pages that were written before an error stay.

        Raises DirectoryFailed, DirectoryAddressRejected, TenantSuspended, TenantBusy, UnknownTenant, and RunLost if another
        process took the directory over.
        """
        with in_tenant(self.config.tenant_id):
            active = people.count_active(self.config.pk)
        for page in self._pages():
            self._process(page)
        self._retry_waiting()
        self._set_groups(complete=not self._late)
        complete = not self._late
        if complete and self.reading.full:
            self._find_gone()
        error = self._deactivate_leavers(active)
        if error:
            return Outcome(REFUSED, error)
        if not complete:
            return Outcome(
                INCOMPLETE,
                f"The time was up after {self.tally.found} objects. The command sync_directory reads all of them.",
            )
        # A taken address may become free here without a change in the directory, so the next read is a full one.
        return Outcome(SUCCEEDED, cursor="" if self._left_over else self.reading.cursor)

    def _time_is_up(self) -> bool:
        self._late |= self.deadline is not None and time.monotonic() > self.deadline
        return self._late

    def _retry_waiting(self) -> None:
        """Decide again about objects whose address was taken, as long as that frees other addresses, then a last time.

        Each round may free only one address, so the deadline ends this too.
        """
        last = False
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for start in range(0, len(waiting), AT_ONCE):
                if self._time_is_up():
                    return
                self._apply(waiting[start : start + AT_ONCE], last=last)
            last = len(self._waiting) == len(waiting)

    def _pages(self) -> Iterator[list[DirectoryObject]]:
        """Yield what is read in pages of our own size; the later of two responses about one object counts."""
        page: dict[str, DirectoryObject] = {}
        with contextlib.closing(self.reading.pages()) as responses:
            for response in responses:
                beat(self.run)
                for directory_object in response:
                    page[directory_object.external_id] = directory_object
                    if len(page) == AT_ONCE:
                        yield list(page.values())
                        page = {}
                # Checked here and not after our own page, as a response may hold a single object.
                if self._time_is_up():
                    break
        # A reading that ran out of time ends as if there were no more objects.
        self._time_is_up()
        if page:
            yield list(page.values())

    def _process(self, page: list[DirectoryObject]) -> None:
        for directory_object in page:
            self._seen.add(directory_object.external_id)
            for name in directory_object.groups:
                self._members[name].add(directory_object.external_id)
        self.tally.found = len(self._seen)
        if self.tally.found > MOST_OBJECTS:
            raise DirectoryFailed(f"The directory has more than {MOST_OBJECTS} objects. Narrow the filter.")
        entries = [to_entry(directory_object, self.config.mapping) for directory_object in page]
        self._apply(entries, last=len(self._waiting) > MOST_WAITING)
        self.progress(self.tally.found)

    def _apply(self, entries: list[Entry], *, last: bool) -> None:
        beat(self.run)
        with in_tenant(self.config.tenant_id):
            for attempt in range(TRIES):
                plan = self._decide(entries, last=last)
                if self.run.dry_run or not plan.writes():
                    break
                try:
                    with tenant_atomic():
                        if touched := plan.touched():
                            people.lock(touched)
                            # Decide again under the lock: an admin may have changed a user since the first decision.
                            plan = self._decide(entries, last=last)
                        self._write(plan)
                    break
                except IntegrityError:
                    # One of the addresses was registered at the same moment: the next decision sees it as taken.
                    if attempt == TRIES - 1:
                        raise
        self._note(plan)

    def _decide(self, entries: list[Entry], *, last: bool) -> Plan:
        linked = people.linked_to(
            {entry.external_id for entry in entries}, config_id=self.config.pk, living=self.living
        )
        email_keys = {
            entry.email_key
            for entry in entries
            if entry.email_key
            and (entry.external_id not in linked or linked[entry.external_id].email_key != entry.email_key)
        }
        return decide(
            entries,
            linked,
            people.holders_of(email_keys),
            config_id=self.config.pk,
            mapping=self.config.mapping,
            handed=self._handed if self.run.dry_run else None,
            last=last,
        )

    def _write(self, plan: Plan) -> None:
        if plan.adopted:
            people.adopt(plan.adopted, self.config)
        if plan.reactivated_here:
            people.forget_deactivation(plan.reactivated_here)
        if plan.changed:
            people.update(plan.changed, self.config)
        if plan.new:
            people.create(plan.new, self.config, client_id=self.client_id)
        if plan.back:
            people.activate(plan.back, self.config)

    def _note(self, plan: Plan) -> None:
        tally = self.tally
        tally.created += len(plan.new)
        tally.updated += len(plan.changed)
        tally.activated += len(plan.back)
        tally.skipped += len(plan.skipped)
        for entry in plan.new:
            tally.show(entry.external_id, "create", email=entry.email, name=entry.name)
        for change in plan.changed:
            tally.show(change.person.external_id, "update", email=change.email, name=change.name)
        for person in plan.back:
            tally.show(person.external_id, "activate", email=person.email, name=person.name)
        for entry, code in plan.skipped:
            tally.show(entry.external_id, "skip", email=entry.email, name=entry.name)
            if code != OFF:
                tally.reject(entry.external_id, code, MESSAGES[code])
            self._left_over |= code == TAKEN
        self._waiting += plan.waiting
        self._leaving.update((person.user_id, person) for person in plan.leaving)

    def _find_gone(self) -> None:
        """Find linked users whose objects were not read. Only valid after a full read."""
        last = 0
        while True:
            with in_tenant(self.config.tenant_id):
                batch = people.linked_after(last, config_id=self.config.pk, at_once=10 * AT_ONCE)
            if not batch:
                return
            for person in batch:
                if person.active and person.external_id not in self._seen:
                    self._leaving[person.user_id] = person
            last = batch[-1].link_id

    def _deactivate_leavers(self, active: int) -> str:
        """Deactivate users who are disabled or gone; return the reason if there are too many at once.

        A directory that suddenly looks empty usually has a wrong filter or missing read permissions.
        """
        leaving = list(self._leaving.values())
        if not leaving:
            return ""
        percent = self.config.max_deactivation_percent
        may_leave = max(ALWAYS_MAY_LEAVE, active * percent // 100) if percent else 0
        too_many = len(leaving) > may_leave
        if not self.force and (too_many or (self.reading.full and not self.tally.found)):
            return (
                f"{len(leaving)} of {active} active users would be deactivated, more than {percent} % or all of them. No user"
                " was changed. Check base and filter of the directory; if they are right, run again with force."
            )
        for person in leaving:
            self.tally.show(person.external_id, "deactivate", email=person.email, name=person.name)
        if self.run.dry_run:
            self.tally.deactivated = len(leaving)
            return ""
        for start in range(0, len(leaving), AT_ONCE):
            batch = leaving[start : start + AT_ONCE]
            beat(self.run)
            with in_tenant(self.config.tenant_id), tenant_atomic():
                people.lock([person.user_id for person in batch])
                self.tally.deactivated += people.deactivate(batch, self.config)
        return ""

    def _stated_members(self) -> dict[str, set[str]] | None:
        """Return the members of the mapped groups, for directories that list members by group; stop when the time is up.

        All are read before the first user joins a group, so that an error leaves no group half changed.
        """
        pages = self.reading.members()
        if pages is None:
            return None
        members: dict[str, set[str]] = defaultdict(set)
        for name, ids in pages:
            beat(self.run)
            members[name] |= ids
            if sum(map(len, members.values())) > MOST_MEMBERS:
                raise DirectoryFailed(f"The mapped groups have more than {MOST_MEMBERS} members. Map smaller ones.")
            if self._time_is_up():
                break
        return members

    def _set_groups(self, *, complete: bool) -> None:
        """Set the memberships of the tenant's groups by the directory groups that are mapped to them."""
        if not self.config.groups:
            return
        stated_members = self._stated_members() if complete else None
        if self._late and complete:
            # The unread pages are unknown, so no user joins or leaves.
            return
        members = self._members if stated_members is None else stated_members
        all_known = complete and (self.reading.full or stated_members is not None)
        # Several directory groups may map to one group here.
        members_by_group: dict[str, set[str]] = defaultdict(set)
        for name, here in self.config.groups.items():
            members_by_group[here.lower()] |= members.get(name, set())
        with in_tenant(self.config.tenant_id):
            groups_by_key = {
                group.key: group for group in Group.objects.annotate(key=Lower("name")).filter(key__in=members_by_group)
            }
            for _ in members_by_group.keys() - groups_by_key.keys():
                self.tally.reject("", NO_GROUP, MESSAGES[NO_GROUP])
            if self.run.dry_run:
                return
            for key, group in sorted(groups_by_key.items()):
                with tenant_atomic():
                    people.set_members(group, members_by_group[key], self.config, only_add=not all_known)
