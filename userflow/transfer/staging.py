"""The statements of an import: COPY into a temporary table, then set-based statements on it.

An import of 100,000 users must take at least 5,000 rows a second, which the ORM does not reach. Call these functions inside
`in_tenant` and `tenant_atomic`. The unique index decides races with other writers, not a look-up beforehand.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from operator import attrgetter
from typing import Final
from uuid import UUID

import orjson
from django.db import connections
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from identity_platform.postgresql.row_errors import unique_or
from identity_platform.postgresql.statements import execute, fetch_rows
from identity_platform.postgresql.transactions import set_timeout
from identity_platform.transfer.report import Tally
from tenants.entering.target import TENANT_ALIAS
from userflow.accounts.event_payloads import person
from userflow.accounts.models import LOCAL, EndUser, Group, GroupMembership, Role, RoleBinding
from userflow.credentials import unused_registrations
from userflow.errors import ExternalIdTaken
from userflow.events.outbox import publish, publish_for_each


@dataclass(slots=True)
class Staged:
    """An end user as in the file; None if the file does not state a field."""

    line: int
    id: UUID
    email: str
    email_key: str
    created_at: datetime
    name: str | None = None
    active: bool = True
    provider: str = LOCAL
    client_id: UUID | None = None
    password_hash: str = ""
    language: str | None = None
    external_id: str | None = None
    metadata: dict[str, object] | None = None
    app_metadata: dict[str, object] | None = None
    email_verified: bool = False
    last_login: datetime | None = None
    groups: Sequence[str] = ()
    # None: the default role.
    roles: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class NamedGrant:
    """A role or group that a row names."""

    id: UUID
    name: str
    # A role's own, or those of the roles that a group carries.
    permissions: frozenset[str]


# Columns of the temporary table.
_COLUMNS: Final = [field.name for field in fields(Staged) if field.name not in ("groups", "roles")]
_columns_of = attrgetter(*_COLUMNS)
# Dropped at the end of the transaction, so nothing stays in the connection or behind a pooler.
_MAKE = """
CREATE TEMPORARY TABLE importing (
    line bigint, id uuid, email text, email_key text, name text, active boolean, provider text, client_id uuid,
    password_hash text, language text, external_id text, metadata jsonb, app_metadata jsonb, email_verified boolean,
    created_at timestamptz, last_login timestamptz
) ON COMMIT DROP
"""
_COPY = f"COPY importing ({', '.join(_COLUMNS)}) FROM STDIN"
# A stated id is kept if it is free.
_FREE_IDS = """
UPDATE importing s SET id = gen_random_uuid() FROM userflow_enduser u WHERE u.id = s.id
"""
# An external id of another user, or of an earlier row about another user.
_EXTERNAL_IDS_TAKEN = """
SELECT DISTINCT s.line FROM (SELECT line, email_key, external_id, first_value(email_key) OVER
    (PARTITION BY external_id ORDER BY line) AS first_key FROM importing WHERE external_id IS NOT NULL) s
LEFT JOIN userflow_enduser u ON u.external_id = s.external_id
WHERE s.first_key <> s.email_key OR u.email_key <> s.email_key
"""
# In the order of the unique index, so that overlapping imports wait for each other without a deadlock.
_INSERT = """
WITH taken AS (
    INSERT INTO userflow_enduser (id, email, email_key, name, active, provider, client_id, password, language,
        external_id, metadata, app_metadata, mfa_methods, email_verified_at, created_at, updated_at, last_login)
    SELECT id, email, email_key, coalesce(name, ''), active, provider, client_id, password_hash, coalesce(language, ''),
        external_id, coalesce(metadata, '{}'), coalesce(app_metadata, '{}'), '[]',
        CASE WHEN email_verified THEN %(moment)s END, created_at, %(moment)s, last_login
    FROM importing ORDER BY email_key, line ON CONFLICT DO NOTHING RETURNING id
)
SELECT s.line, s.id FROM importing s JOIN taken t ON t.id = s.id
"""
_WOULD_INSERT = """
SELECT DISTINCT ON (email_key) line, id FROM importing s
WHERE NOT EXISTS (SELECT FROM userflow_enduser u WHERE u.email_key = s.email_key)
OR s.email_key IN ({given_up}) ORDER BY email_key, line
"""
_FOUND = """
SELECT s.line, u.id FROM importing s JOIN userflow_enduser u ON u.email_key = s.email_key WHERE s.line = ANY(%s)
"""
# By line: the permissions of the user who has its address.
_HELD = """
SELECT s.line, jsonb_agg(DISTINCT p.name) FROM importing s JOIN userflow_enduser u ON u.email_key = s.email_key
JOIN userflow_role r ON r.id IN (SELECT b.role_id FROM userflow_rolebinding b WHERE b.user_id = u.id
    UNION SELECT c.role_id FROM userflow_groupmembership m JOIN userflow_group_roles c ON c.group_id = m.group_id
    WHERE m.user_id = u.id), jsonb_array_elements_text(r.permissions) AS p(name)
WHERE s.line = ANY(%s) GROUP BY s.line
"""
_LOCK = "SELECT FROM userflow_enduser WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
# Of two rows about one user the later one wins, as in two batches.
_UPDATE = """
UPDATE userflow_enduser u SET name = coalesce(s.name, u.name), language = coalesce(s.language, u.language),
    external_id = coalesce(s.external_id, u.external_id), metadata = coalesce(s.metadata, u.metadata),
    app_metadata = coalesce(s.app_metadata, u.app_metadata), updated_at = now()
FROM (SELECT DISTINCT ON (email_key) * FROM importing WHERE line = ANY(%s) ORDER BY email_key, line DESC) s
WHERE u.email_key = s.email_key
"""
_REPLACED: Final = ["app_metadata", "external_id", "language", "metadata", "name"]
_NAMED = """
SELECT w.name, n.id, n.name{permissions} FROM unnest(%s::text[]) AS w(name) JOIN {table} n ON lower(n.name) = lower(w.name)
ORDER BY n.id FOR KEY SHARE OF n
"""


def raise_timeouts() -> None:
    """Raise the timeouts for this transaction: a batch may take longer than a request's statements."""
    for name in ("statement_timeout", "lock_timeout"):
        set_timeout(TENANT_ALIAS, name, 60_000)


def stage(users: Iterable[Staged]) -> None:
    """COPY users into the temporary table that the other functions use."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(_MAKE)
        with cursor.copy(_COPY) as copy:
            for user in users:
                values = _columns_of(user)
                copy.write_row([orjson.dumps(value).decode() if isinstance(value, dict) else value for value in values])
        cursor.execute(_FREE_IDS)


def external_ids_taken() -> set[int]:
    """Return the lines whose external id belongs to another user, also of an earlier line."""
    return {line for (line,) in fetch_rows(TENANT_ALIAS, _EXTERNAL_IDS_TAKEN)}


def leave_out(lines: Iterable[int]) -> None:
    """Remove these lines from the temporary table."""
    execute(TENANT_ALIAS, "DELETE FROM importing WHERE line = ANY(%s)", [list(lines)])


def insert(moment: datetime, *, dry_run: bool = False) -> dict[int, UUID]:
    """Create the users whose address is free; return their ids by line. With `dry_run` only return them."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        if dry_run:
            select, values = _addresses_given_up().query.sql_with_params()
            cursor.execute(_WOULD_INSERT.format(given_up=select), values)
            return dict(cursor.fetchall())
        if keys := list(_addresses_given_up()):
            unused_registrations.release_addresses(keys, to="import")
        cursor.execute(_INSERT, {"moment": moment})
        return dict(cursor.fetchall())


def _addresses_given_up() -> "QuerySet[EndUser, str]":
    """Return the addresses of lines that unused registrations give up (`userflow.credentials.unused_registrations`)."""
    of_lines = RawSQL("SELECT email_key FROM importing", [])
    return EndUser.objects.filter(EndUser.YIELDS, email_key__in=of_lines).values_list("email_key", flat=True)


def update(lines: Sequence[int], *, dry_run: bool = False) -> dict[int, UUID]:
    """Set name, language, external id and both metadata of the users who have these lines' addresses.

    Return their ids by line. Password, address, status and times stay, so the users sign in as before. Raises
    ExternalIdTaken if another user has got an external id since `external_ids_taken`.
    """
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(_FOUND, [list(lines)])
        ids_by_line: dict[int, UUID] = dict(cursor.fetchall())
        if ids_by_line and not dry_run:
            cursor.execute(_LOCK, [list(ids_by_line.values())])
            with unique_or(ExternalIdTaken):
                cursor.execute(_UPDATE, [list(ids_by_line)])
        return ids_by_line


def permissions_of(lines: Sequence[int]) -> dict[int, list[str]]:
    """Return the permissions of the users who have these lines' addresses, by line; without lines of users who hold none."""
    return {line: _json(permissions) for line, permissions in fetch_rows(TENANT_ALIAS, _HELD, [list(lines)])}


def bind(
    model: type[RoleBinding | GroupMembership], column: str, pairs: Iterable[tuple[UUID, UUID]]
) -> list[tuple[UUID, UUID]]:
    """Bind users to roles or groups by pairs of (user, role or group); return the new pairs."""
    distinct_pairs = sorted(set(pairs))
    if not distinct_pairs:
        return []
    users, others = [user for user, _ in distinct_pairs], [other for _, other in distinct_pairs]
    return fetch_rows(
        TENANT_ALIAS,
        f"INSERT INTO {model._meta.db_table} (user_id, {column}, created_at) SELECT u, o, now()"
        f" FROM unnest(%s::uuid[], %s::uuid[]) AS pair(u, o) ON CONFLICT DO NOTHING RETURNING user_id, {column}",
        [users, others],
    )


def roles(names: Iterable[str]) -> dict[str, NamedGrant]:
    """Return the roles with these names in any case, by the given name, locked against deletion."""
    return _rows_by_names(Role._meta.db_table, names, ", n.permissions")


def groups(names: Iterable[str]) -> dict[str, NamedGrant]:
    """Return the groups with these names, like `roles`."""
    carried = (
        ", (SELECT coalesce(jsonb_agg(DISTINCT p), '[]') FROM userflow_group_roles c"
        " JOIN userflow_role r ON r.id = c.role_id, jsonb_array_elements(r.permissions) p WHERE c.group_id = n.id)"
    )
    return _rows_by_names(Group._meta.db_table, names, carried)


def _rows_by_names(table: str, names: Iterable[str], permissions: str) -> dict[str, NamedGrant]:
    distinct_names = sorted(set(names))
    if not distinct_names:
        return {}
    rows = fetch_rows(TENANT_ALIAS, _NAMED.format(table=table, permissions=permissions), [distinct_names])
    return {
        requested_name: NamedGrant(row_id, name, frozenset(_json(said))) for requested_name, row_id, name, said in rows
    }


def _json(value: str | list[str]) -> list[str]:
    # Django's adapters leave jsonb as text on plain cursors.
    return list(orjson.loads(value)) if isinstance(value, str) else list(value)


# The limit of one API call, so that no message is larger than those of other changes.
MOST_IDS = 1000


def publish_created(people: Iterable[Staged], ids: Mapping[int, UUID], moment: datetime) -> None:
    """Publish `end_user.created` for each created user."""
    publish_for_each(
        "end_user.created",
        (
            person(
                EndUser(
                    id=ids[staged.line],
                    email=staged.email,
                    name=staged.name or "",
                    active=staged.active,
                    provider=staged.provider,
                    client_id=staged.client_id,
                    language=staged.language or "",
                    external_id=staged.external_id,
                    metadata=staged.metadata or {},
                    app_metadata=staged.app_metadata or {},
                    created_at=staged.created_at,
                    updated_at=moment,
                    last_login=staged.last_login,
                ),
                via="import",
            )
            for staged in people
            if staged.line in ids
        ),
    )


def publish_updated(ids: Iterable[UUID]) -> None:
    """Publish `end_user.updated` for each changed user."""
    users = EndUser.objects.filter(pk__in=set(ids)).order_by("id")
    publish_for_each("end_user.updated", (person(user, changed=_REPLACED) for user in users.iterator()))


def publish_assigned(event: str, member: str, pairs: Iterable[tuple[UUID, UUID]], names: Iterable[NamedGrant]) -> None:
    """Publish one message for each role or group with its new users; `member` names the field with its id."""
    known = {role_or_group.id: role_or_group.name for role_or_group in names}
    publish_for_each(event, _members(member, pairs, known))


def _members(member: str, pairs: Iterable[tuple[UUID, UUID]], known: Mapping[UUID, str]) -> Iterator[dict[str, object]]:
    people: dict[UUID, list[UUID]] = defaultdict(list)
    for user, other in pairs:
        if other in known:
            people[other].append(user)
    for other, users in sorted(people.items()):
        for start in range(0, len(users), MOST_IDS):
            yield {member: other, "name": known[other], "user_ids": users[start : start + MOST_IDS]}


def publish_finished(import_id: UUID, tally: Tally) -> None:
    publish("import.finished", {"import_id": import_id, **tally.counts()})
