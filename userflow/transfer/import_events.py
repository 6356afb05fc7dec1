"""Webhook events of an import, published in the transaction of each batch and at its end.

The rows are generators: a tenant without endpoints pays one statement for each kind of event.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from uuid import UUID

from identity_platform.transfer.report import Tally
from userflow.accounts.event_payloads import person
from userflow.accounts.models import EndUser, Group, Role
from userflow.events.outbox import publish, publish_for_each
from userflow.transfer.staging import Named, Staged

# The limit of one API call, so that no message is larger than those of other changes.
MOST_IDS = 1000


def publish_created(people: Iterable[Staged], ids: Mapping[int, UUID], moment: datetime) -> None:
    """Publish `end_user.created` for each created user."""
    publish_for_each(
        "end_user.created",
        (
            person(
                EndUser(
                    id=ids[one.line],
                    email=one.email,
                    name=one.name or "",
                    active=one.active,
                    provider=one.provider,
                    client_id=one.client_id,
                    metadata=one.metadata or {},
                    created_at=one.created_at,
                    updated_at=moment,
                    last_login=one.last_login,
                ),
                via="import",
            )
            for one in people
            if one.line in ids
        ),
    )


def publish_updated(ids: Iterable[UUID]) -> None:
    """Publish `end_user.updated` for each changed user."""
    found = EndUser.objects.filter(pk__in=set(ids)).order_by("id")
    publish_for_each("end_user.updated", (person(user, changed=["metadata", "name"]) for user in found.iterator()))


def publish_assigned(event: str, member: str, pairs: Iterable[tuple[UUID, UUID]], names: Iterable[Named]) -> None:
    """Publish one message for each role or group with its new users; `member` names the field with its id."""
    known = {named.id: named.name for named in names}
    publish_for_each(event, _members(member, pairs, known))


def _members(member: str, pairs: Iterable[tuple[UUID, UUID]], known: Mapping[UUID, str]) -> Iterator[dict[str, object]]:
    people: dict[UUID, list[UUID]] = defaultdict(list)
    for user, other in pairs:
        if other in known:
            people[other].append(user)
    for other, users in sorted(people.items()):
        for start in range(0, len(users), MOST_IDS):
            yield {member: other, "name": known[other], "user_ids": users[start : start + MOST_IDS]}


def publish_roles(roles: Iterable[Role]) -> None:
    """Publish `role.created` for each role."""
    publish_for_each(
        "role.created",
        (
            {"role_id": one.pk, "name": one.name, "description": one.description, "permissions": one.permissions}
            for one in roles
        ),
    )


def publish_groups(groups: Iterable[Group], carried: Mapping[str, Iterable[str]]) -> None:
    """Publish `group.created` for each group, with the names of its roles."""
    publish_for_each(
        "group.created",
        (
            {
                "group_id": one.pk,
                "name": one.name,
                "description": one.description,
                "roles": sorted(carried[one.name]),
            }
            for one in groups
        ),
    )


def publish_finished(import_id: UUID, tally: Tally) -> None:
    """Publish `import.finished` with the counts."""
    publish("import.finished", {"import_id": import_id, **tally.counts()})
