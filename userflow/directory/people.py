"""Read and write the linked users of the entered tenant a page at a time, with a fixed number of statements per page."""

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

import orjson
from django.db.models import Q
from django.utils.timezone import now

from identity_platform.audit.writer import record_for_each_in_tenant
from identity_platform.postgresql.statements import execute, fetch_rows
from userflow.accounts.event_payloads import person
from userflow.accounts.models import DEFAULT_ROLE, EndUser, Group, Role, RoleBinding
from userflow.accounts.realms import END_USERS
from userflow.credentials import email_verification as proofs
from userflow.credentials import unused_registrations
from userflow.credentials.models import EmailProof, EndUserEmailUndo
from userflow.directory.models import DirectoryConfig, DirectoryLink
from userflow.directory.objects import Entry
from userflow.directory.plan import Change, Person
from userflow.events.outbox import publish_for_each
from userflow.sessions.ending import end_found

MOST_NAMED: Final = 1000
# The fields of `Person`, in their order.
_PERSON: Final = (
    "pk",
    "config_id",
    "external_id",
    "switched_off",
    "user_id",
    "user__email",
    "user__email_key",
    "user__name",
    "user__active",
    "user__metadata",
    "user__app_metadata",
)
_UPDATE: Final = (
    "UPDATE userflow_enduser u SET email = n.email, email_key = n.email_key, name = n.name, metadata = n.metadata,"
    " app_metadata = n.app_metadata,"
    " email_verified_at = CASE WHEN u.email_key = n.email_key THEN u.email_verified_at ELSE %s END, updated_at = %s"
    " FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::jsonb[], %s::jsonb[])"
    " AS n(id, email, email_key, name, metadata, app_metadata) WHERE u.id = n.id"
)
# A group may have a million members: one array each, where the ORM passes every id as a parameter.
_JOIN: Final = (
    "INSERT INTO userflow_groupmembership (group_id, user_id, created_at)"
    " SELECT %s, l.user_id, %s FROM userflow_directorylink l"
    " WHERE l.config_id = %s AND l.external_id = ANY(%s) AND NOT EXISTS"
    " (SELECT FROM userflow_groupmembership m WHERE m.group_id = %s AND m.user_id = l.user_id)"
    " ON CONFLICT DO NOTHING RETURNING user_id"
)
_LEAVE: Final = (
    "DELETE FROM userflow_groupmembership m USING userflow_directorylink l"
    " WHERE m.group_id = %s AND m.user_id = l.user_id AND l.config_id = %s AND NOT l.external_id = ANY(%s)"
    " RETURNING m.user_id"
)


def linked_to(external_ids: Collection[str], *, config_id: UUID, living: Collection[UUID]) -> dict[str, Person]:
    """Return the users linked to these objects, by external id; `living` are the tenant's configurations."""
    people_by_id: dict[str, Person] = {}
    # An object of a deleted configuration belongs to the next configuration that reads it.
    ours = Q(config_id=config_id) | ~Q(config_id__in=living)
    for row in DirectoryLink.objects.filter(ours, external_id__in=external_ids).values_list(*_PERSON):
        person = Person(*row)
        # This configuration's own link wins over that of a deleted one.
        if person.config_id == config_id or person.external_id not in people_by_id:
            people_by_id[person.external_id] = person
    return people_by_id


def holders_of(email_keys: Collection[str]) -> dict[str, UUID]:
    """Return who has these addresses at the moment, by the address's key. Records that yield theirs are left out."""
    holders = (
        EndUser.objects.filter(email_key__in=email_keys).exclude(EndUser.YIELDS)
        if email_keys
        else EndUser.objects.none()
    )
    return dict(holders.values_list("email_key", "pk"))


def linked_after(link_id: int, *, config_id: UUID, at_once: int) -> list[Person]:
    """Return the next users of a configuration after a link id, in the order of the ids."""
    rows = DirectoryLink.objects.filter(config_id=config_id, pk__gt=link_id).order_by("pk").values_list(*_PERSON)
    return [Person(*row) for row in rows[:at_once]]


def count_active(config_id: UUID) -> int:
    """Return the number of active users of this configuration."""
    return DirectoryLink.objects.filter(config_id=config_id, user__active=True).count()


def lock(user_ids: Collection[UUID]) -> None:
    """Lock these users, always in the same order."""
    list(EndUser.objects.filter(pk__in=user_ids).order_by("pk").select_for_update(no_key=True).values_list("pk"))


def create(entries: Sequence[Entry], config: DirectoryConfig, *, client_id: UUID) -> list[UUID]:
    """Create users with their links and the default role. Raises IntegrityError if an address was taken meanwhile."""
    unused_registrations.release_addresses([entry.email_key for entry in entries], to="directory")
    moment = now()
    users = [
        EndUser(
            email=entry.email,
            email_key=entry.email_key,
            name=entry.name,
            provider=config.kind,
            client_id=client_id,
            metadata=entry.metadata,
            app_metadata=entry.app_metadata,
            # The directory vouches for the address.
            email_verified_at=moment,
        )
        for entry in entries
    ]
    EndUser.objects.bulk_create(users)
    DirectoryLink.objects.bulk_create(
        DirectoryLink(config_id=config.pk, external_id=entry.external_id, user=user)
        for entry, user in zip(entries, users, strict=True)
    )
    ids = [user.pk for user in users]
    for role in Role.objects.filter(name=DEFAULT_ROLE):
        RoleBinding.objects.bulk_create(RoleBinding(user=user, role=role) for user in users)
    _record("end_user.registered", ids, config)
    events = (person(user, via="directory", directory_id=config.pk) for user in users)
    publish_for_each("end_user.created", events)
    return ids


def update(changes: Sequence[Change], config: DirectoryConfig) -> None:
    """Update users to the directory's values. Raises IntegrityError if an address was taken meanwhile."""
    moment = now()
    ids = [change.person.user_id for change in changes]
    columns = [
        [change.email for change in changes],
        [change.email_key for change in changes],
        [change.name for change in changes],
        [orjson.dumps(change.metadata).decode() for change in changes],
        [orjson.dumps(change.app_metadata).decode() for change in changes],
    ]
    moved = [change.person.user_id for change in changes if change.changes_address]
    if moved:
        unused_registrations.release_addresses(
            [change.email_key for change in changes if change.changes_address], to="directory"
        )
    execute("tenant", _UPDATE, [moment, moment, ids, *columns])
    if moved:
        # As with every change of an address: sessions end, a pending verification is dropped, and links to set a password
        # become invalid, as they were sent to the old address.
        _end_sessions(moved, reason="email_changed")
        EmailProof.objects.filter(user_id__in=moved).delete()
        # The directory owns the address, so its change cannot be undone here.
        EndUserEmailUndo.objects.filter(user_id__in=moved).delete()
        END_USERS.tickets._default_manager.filter(user_id__in=moved).delete()
    _record("end_user.updated", ids, config)
    events = [{**_about(change.person, config), **change.event_data()} for change in changes]
    publish_for_each("end_user.updated", events)


def adopt(people: Sequence[Person], config: DirectoryConfig) -> None:
    """Move links of a deleted configuration to this one."""
    DirectoryLink.objects.filter(pk__in=[person.link_id for person in people]).update(config_id=config.pk)


def forget_deactivation(people: Sequence[Person]) -> None:
    """Forget that a run deactivated these users: an admin has activated them since, and decides from now on."""
    DirectoryLink.objects.filter(pk__in=[person.link_id for person in people]).update(switched_off=False)


def activate(people: Sequence[Person], config: DirectoryConfig) -> None:
    """Activate the locked users whom a run had deactivated, and no others."""
    links = DirectoryLink.objects.filter(user_id__in=[person.user_id for person in people], switched_off=True)
    ours = list(links.values_list("user_id", flat=True))
    links.update(switched_off=False)
    on = _set_active(ours, active=True)
    _record("end_user.activated", on, config)
    back = [_about(person, config) | {"active": True} for person in people if person.user_id in set(on)]
    publish_for_each("end_user.activated", back)


def deactivate(people: Sequence[Person], config: DirectoryConfig) -> int:
    """Deactivate locked users, end their sessions and delete their tickets; return how many were active."""
    off = _set_active([person.user_id for person in people], active=False)
    # Only these: a user whom an admin has just deactivated stays inactive when the object returns.
    DirectoryLink.objects.filter(user_id__in=off).update(switched_off=True)
    _end_sessions(off, reason="deactivated")
    END_USERS.windows._default_manager.filter(user_id__in=off).delete()
    END_USERS.tickets._default_manager.filter(user_id__in=off).delete()
    proofs.give_up_changes(off)
    _record("end_user.deactivated", off, config)
    gone = [_about(person, config) | {"active": False} for person in people if person.user_id in set(off)]
    publish_for_each("end_user.deactivated", gone)
    return len(off)


def _set_active(user_ids: Collection[UUID], *, active: bool) -> list[UUID]:
    """Set the state of locked users; return those whose state changed."""
    users = EndUser.objects.filter(pk__in=user_ids, active=not active)
    changed = list(users.values_list("pk", flat=True))
    users.update(active=active, updated_at=now())
    return changed


def _end_sessions(user_ids: Collection[UUID], *, reason: str) -> None:
    end_found(END_USERS, END_USERS.sessions._default_manager.filter(user_id__in=user_ids), reason=reason)


def set_members(group: Group, external_ids: Collection[str], config: DirectoryConfig, *, only_add: bool) -> None:
    """Make these objects the group's members among the configuration's users; other memberships stay.

    With `only_add` no user leaves: after an incomplete read it is unknown who is not a member.
    """
    present = list(external_ids)
    left: list[UUID] = []
    joined = [user_id for (user_id,) in fetch_rows("tenant", _JOIN, [group.pk, now(), config.pk, present, group.pk])]
    if not only_add:
        left = [user_id for (user_id,) in fetch_rows("tenant", _LEAVE, [group.pk, config.pk, present])]
    for action, ids in (("group.joined", joined), ("group.left", left)):
        if ids:
            record_for_each_in_tenant(action, kind="end_user", ids=ids, details={"group_id": str(group.pk)})
            event = "group.members_added" if action == "group.joined" else "group.members_removed"
            # The same message as from the API, with bounded length.
            batches = (ids[start : start + MOST_NAMED] for start in range(0, len(ids), MOST_NAMED))
            publish_for_each(
                event, ({"group_id": group.pk, "name": group.name, "user_ids": batch} for batch in batches)
            )


def _about(person: Person, config: DirectoryConfig) -> dict[str, object]:
    return {
        "user_id": person.user_id,
        "email": person.email,
        "name": person.name,
        "active": person.active,
        "provider": config.kind,
        "metadata": person.metadata,
        "app_metadata": person.app_metadata,
        "directory_id": config.pk,
    }


def _record(action: str, ids: Sequence[UUID], config: DirectoryConfig) -> None:
    record_for_each_in_tenant(action, kind="end_user", ids=ids, details={"directory_id": str(config.pk)})


def keep_admins_decision(sender: object, *, user: EndUser, **_: object) -> None:
    """Forget that a directory had deactivated the user: a user that an admin deactivates stays so at the next run."""
    DirectoryLink.objects.filter(user=user).update(switched_off=False)
