"""One batch of rows: validated one by one, then checked and written as sets in one transaction."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID, uuid4

from django.utils.timezone import now

from identity_platform.api.email_addresses import email_key
from identity_platform.transfer.report import Tally
from identity_platform.transfer.rows import Row, RowError
from identity_platform.transfer.runs import SKIP, UPDATE, Batch, Options
from tenants.entering.context import tenant_atomic
from userflow.accounts.models import DEFAULT_ROLE, Client, GroupMembership, Role, RoleBinding
from userflow.accounts.principals import Principal
from userflow.accounts.rank import lacking_for_user
from userflow.transfer import name_resolution, staging
from userflow.transfer.name_resolution import Definition, Names
from userflow.transfer.row_fields import KINDS, USER
from userflow.transfer.staging import Staged

TAKEN = "A user with this address exists, or an earlier row has it."
EXTERNAL_ID_TAKEN = "Another user has this external id, or an earlier row has it."
STRONGER = "The user with this address holds permissions that you do not hold."


@dataclass
class Rules:
    """The settings of one import, for all of its batches."""

    tenant_id: UUID
    options: Options
    from_text: bool
    default_client: bool = False
    # The caller over REST; None for a command, which an operator runs.
    by: Principal | None = None
    # The addresses that a dry run would have created so far, as hashes.
    planned: set[int] | None = None
    # The address of each external id that a dry run would have stored so far, both as hashes.
    planned_external_ids: dict[int, int] = field(default_factory=dict)
    clients: dict[UUID, bool] = field(default_factory=dict)

    @cached_property
    def client_id(self) -> UUID | None:
        """The tenant's default client."""
        return Client.objects.filter(tenant_id=self.tenant_id, is_default=True).values_list("pk", flat=True).first()

    def has_client(self, client_id: UUID) -> bool:
        """Return whether the tenant has the client; queried once per client."""
        if client_id not in self.clients:
            self.clients[client_id] = Client.objects.filter(pk=client_id, tenant_id=self.tenant_id).exists()
        return self.clients[client_id]


@dataclass(slots=True)
class Judged:
    """The valid rows of a batch, and the faults of the others."""

    moment: datetime
    people: list[Staged] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)
    faults: list[RowError] = field(default_factory=list)


def apply_batch(judged: Judged, rules: Rules, *, before_commit: Callable[[Batch], None] = lambda batch: None) -> Batch:
    """Import a validated batch into the entered tenant; `before_commit` runs in its transaction with the outcome.

    With `dry_run` nothing is written. A faulty row stays out; the others are imported.
    """
    batch = Batch()
    batch.fail(judged.faults)
    people = _with_clients(judged.people, rules, batch)
    with tenant_atomic():
        staging.raise_timeouts()
        name_resolution.create_defined(judged.definitions, rules.options, rules.by, batch)
        people, names = name_resolution.resolve_names(people, rules.options, rules.by, batch)
        made, changed = _write(people, rules, batch, judged.moment)
        if not rules.options.dry_run:
            staging.publish_created(people, made, judged.moment)
            staging.publish_updated(changed.values())
            _bind(people, names, made, changed)
        before_commit(batch)
    return batch


def judge(rows: list[Row], rules: Rules) -> Judged:
    """Validate each row by itself, without the database."""
    judged = Judged(now())
    ids: set[UUID] = set()
    for row in rows:
        kind = row.members.get("kind", USER)
        spec = KINDS.get(kind) if isinstance(kind, str) else None
        if spec is None:
            row.faults.append(RowError(row.line, "kind", f"Send one of: {', '.join(KINDS)}."))
        elif not row.faults:
            values = spec.read(row, from_text=rules.from_text)
            _reject_future(row, values, judged.moment)
            values.pop("kind", None)
            if not row.faults and spec is KINDS[USER]:
                judged.people.append(_staged(row.line, values, ids, judged.moment))
            elif not row.faults:
                judged.definitions.append(Definition(row.line, str(kind), **values))
        judged.faults += row.faults
    return judged


def _reject_future(row: Row, values: dict[str, Any], moment: datetime) -> None:
    for name in ("created_at", "last_login"):
        if values.get(name) is not None and values[name] > moment:
            row.faults.append(RowError(row.line, name, "Send a time in the past."))


def _staged(line: int, values: dict[str, Any], ids: set[UUID], moment: datetime) -> Staged:
    user_id = values.get("id")
    if user_id is None or user_id in ids:
        user_id = uuid4()
    ids.add(user_id)
    derived = {"line": line, "id": user_id, "email_key": email_key(values["email"])}
    return Staged(**{"created_at": moment, **values, **derived})


def _with_clients(people: list[Staged], rules: Rules, batch: Batch) -> list[Staged]:
    """Return the users whose client exists; users without a client get the default one."""
    fine = []
    for person in people:
        if person.client_id is not None and not rules.has_client(person.client_id):
            if not rules.default_client:
                batch.fail([RowError(person.line, "client_id", "No client of this tenant has this id.")])
                continue
            person.client_id = None
        person.client_id = person.client_id or rules.client_id
        fine.append(person)
    return fine


def _write(
    people: list[Staged], rules: Rules, batch: Batch, moment: datetime
) -> tuple[dict[int, UUID], dict[int, UUID]]:
    """Create or change users; return the ids of both by line."""
    if not people:
        return {}, {}
    dry_run = rules.options.dry_run
    staging.stage(people)
    people = _with_free_external_ids(people, rules, batch)
    made = staging.insert(moment, dry_run=dry_run)
    if rules.planned is not None:
        hashes = {person.line: hash(person.email_key) for person in people}
        made = {line: user for line, user in made.items() if hashes[line] not in rules.planned}
        rules.planned |= {hashes[line] for line in made}
    if any(person.external_id is not None and person.line not in made for person in people):
        # Another writer may have taken one since.
        people = _with_free_external_ids(people, rules, batch)
    clashing = [person.line for person in people if person.line not in made]
    changed: dict[int, UUID] = {}
    if rules.options.on_conflict == UPDATE:
        if rules.by is not None:
            permissions_by_line = staging.permissions_of(clashing)
            stronger = {
                line for line, permissions in permissions_by_line.items() if lacking_for_user(rules.by, permissions)
            }
            batch.fail([RowError(line, "email", STRONGER) for line in sorted(stronger)])
            clashing = [line for line in clashing if line not in stronger]
        changed = staging.update(clashing, dry_run=dry_run)
        batch.tally.add(Tally(created=len(made), updated=len(clashing)))
    elif rules.options.on_conflict == SKIP:
        batch.tally.add(Tally(created=len(made), skipped=len(clashing)))
    else:
        batch.tally.add(Tally(created=len(made)))
        batch.fail([RowError(line, "email", TAKEN) for line in clashing])
    return made, changed


def _with_free_external_ids(people: list[Staged], rules: Rules, batch: Batch) -> list[Staged]:
    """Return the users whose external id no other user has; the others are left out before they take over an address."""
    hashes_by_line = {person.line: hash(person.external_id) for person in people if person.external_id is not None}
    if not hashes_by_line:
        return people
    taken = staging.external_ids_taken()
    if rules.planned is not None:
        for person in people:
            if person.line in hashes_by_line:
                key = hash(person.email_key)
                if rules.planned_external_ids.setdefault(hashes_by_line[person.line], key) != key:
                    taken.add(person.line)
    if taken:
        staging.leave_out(taken)
        batch.fail([RowError(line, "external_id", EXTERNAL_ID_TAKEN) for line in sorted(taken)])
    return [person for person in people if person.line not in taken]


def _bind(people: list[Staged], names: Names, made: dict[int, UUID], changed: dict[int, UUID]) -> None:
    default = Role.objects.filter(name=DEFAULT_ROLE).values_list("pk", flat=True).first()
    roles: list[tuple[UUID, UUID]] = []
    groups: list[tuple[UUID, UUID]] = []
    for person in people:
        user = made.get(person.line) or changed.get(person.line)
        if user is None:
            continue
        if person.roles is not None:
            roles += [(user, names.roles[name].id) for name in person.roles]
        elif default is not None and person.line in made:
            roles.append((user, default))
        groups += [(user, names.groups[name].id) for name in person.groups]
    new = staging.bind(RoleBinding, "role_id", roles)
    staging.publish_assigned("role.assigned", "role_id", new, names.roles.values())
    new = staging.bind(GroupMembership, "group_id", groups)
    staging.publish_assigned("group.members_added", "group_id", new, names.groups.values())
