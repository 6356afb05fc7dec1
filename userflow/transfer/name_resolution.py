"""Resolve the roles and groups that rows name, and create those with rows of their own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from identity_platform.audit.writer import record_for_each_in_tenant
from identity_platform.transfer.rows import RowError
from identity_platform.transfer.runs import Batch, Options
from userflow.accounts.event_payloads import group_payload, role_payload
from userflow.accounts.models import Group, Role
from userflow.accounts.principals import Principal
from userflow.accounts.rank import require_grantable
from userflow.errors import GrantsMoreThanHeld
from userflow.events.outbox import publish_for_each
from userflow.transfer import staging
from userflow.transfer.row_fields import GROUP, ROLE
from userflow.transfer.staging import NamedGrant, Staged


@dataclass(frozen=True, slots=True)
class Definition:
    """The row of a role or a group. Roles that a group's row names may be missing."""

    line: int
    kind: str
    name: str
    description: str = ""
    permissions: Sequence[str] = ()
    roles: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Names:
    """The roles and groups found, by name."""

    roles: dict[str, NamedGrant]
    groups: dict[str, NamedGrant]


def resolve_names(
    people: list[Staged], options: Options, by: Principal | None, batch: Batch
) -> tuple[list[Staged], Names]:
    """Find the roles and groups that rows name; reject rows with missing names or permissions beyond the caller's.

    `by` is the caller over REST; None for a command, which an operator runs.
    """
    wanted_roles = {name for person in people for name in person.roles or ()}
    wanted_groups = {name for person in people for name in person.groups}
    if options.create_missing and not options.dry_run:
        _create_roles(Definition(0, ROLE, name) for name in _permitted(wanted_roles, "roles", by))
        _create_groups(Definition(0, GROUP, name) for name in _permitted(wanted_groups, "groups", by))
    names = Names(staging.roles(wanted_roles), staging.groups(wanted_groups))
    fine = []
    for person in people:
        faults = [
            *_faults_of(person.line, "roles", person.roles or (), names.roles, options, by),
            *_faults_of(person.line, "groups", person.groups, names.groups, options, by),
        ]
        if faults:
            batch.fail(faults)
        else:
            fine.append(person)
    return fine, names


def _permitted(names: set[str], field: str, by: Principal | None) -> set[str]:
    return names if by is None or by.may(f"{field}:write") else set()


def _faults_of(
    line: int, field: str, names: Iterable[str], known: dict[str, NamedGrant], options: Options, by: Principal | None
) -> list[RowError]:
    faults = []
    for name in names:
        if by is not None and not by.may(f"{field}:write"):
            return [RowError(line, field, f"This needs the permission {field}:write.")]
        if name not in known:
            if not (options.create_missing and options.dry_run):
                faults.append(RowError(line, field, f"There is none with the name {name!r}."))
        elif by is not None and (reason := _beyond(by, known[name].permissions)):
            faults.append(RowError(line, field, reason))
    return faults


def _beyond(by: Principal, permissions: Iterable[str]) -> str:
    try:
        require_grantable(by, permissions)
    except GrantsMoreThanHeld as error:
        return error.text
    return ""


def create_defined(definitions: list[Definition], options: Options, by: Principal | None, batch: Batch) -> None:
    """Create the roles and groups that have rows of their own, with `create_missing`; existing ones stay unchanged."""
    if by is not None:
        batch.fail(
            [
                RowError(definition.line, "kind", "Only end users can be imported over REST.")
                for definition in definitions
            ]
        )
        return
    for kind, there, make in ((ROLE, staging.roles, _create_roles), (GROUP, staging.groups, _create_groups)):
        rows = [definition for definition in definitions if definition.kind == kind]
        exist = there(definition.name for definition in rows)
        new: dict[str, Definition] = {}
        for definition in rows:
            if definition.name in exist or definition.name.lower() in new:
                batch.tally.skipped += 1
            elif options.create_missing:
                new[definition.name.lower()] = definition
                batch.tally.created += 1
            else:
                reason = f"There is no {kind} {definition.name!r}. Create it, or use --create-missing."
                batch.fail([RowError(definition.line, "name", reason)])
        if not options.dry_run:
            make(new.values())


def _missing(
    definitions: Iterable[Definition], exist: Callable[[Iterable[str]], dict[str, NamedGrant]]
) -> list[Definition]:
    by_name = {definition.name: definition for definition in definitions}
    existing = exist(by_name)
    return [by_name[name] for name in sorted(by_name) if name not in existing]


def _create_roles(definitions: Iterable[Definition]) -> None:
    new = [
        Role(
            id=uuid4(),
            name=definition.name,
            description=definition.description,
            permissions=sorted(set(definition.permissions)),
        )
        for definition in _missing(definitions, staging.roles)
    ]
    if new:
        # If the same role is created at the same moment, that one is used.
        Role.objects.bulk_create(new, ignore_conflicts=True)
        record_for_each_in_tenant("role.imported", kind="role", ids=[role.pk for role in new])
        publish_for_each("role.created", map(role_payload, new))


def _create_groups(definitions: Iterable[Definition]) -> None:
    missing = _missing(definitions, staging.groups)
    new = [Group(id=uuid4(), name=definition.name, description=definition.description) for definition in missing]
    if not new:
        return
    carried = {definition.name: definition.roles for definition in missing}
    _create_roles(Definition(0, ROLE, name) for names in carried.values() for name in names)
    roles = staging.roles({name for names in carried.values() for name in names})
    Group.objects.bulk_create(new, ignore_conflicts=True)
    groups = staging.groups(carried)
    pairs: set[tuple[UUID, UUID]] = {
        (groups[group].id, roles[role].id) for group, names in carried.items() for role in names
    }
    links = Group.roles.through
    links.objects.bulk_create(
        [links(group_id=group, role_id=role) for group, role in sorted(pairs)], ignore_conflicts=True
    )
    record_for_each_in_tenant("group.imported", kind="group", ids=[group.pk for group in new])
    publish_for_each("group.created", (group_payload(definition, carried[definition.name]) for definition in new))
