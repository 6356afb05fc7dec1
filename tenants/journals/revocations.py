"""The journal of revocations: what a restored database must not have again. Restoring brings data back, never authority.

Triggers write a row beside each revocation, in its transaction (`UndeliveredRevocation`), so no statement can pass them by. The
row is delivered to the journal in the global database (`tenants.journals.deliveries`), within a second or two. Until then it is
lost together with the tenant's database, which is the accepted race.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import structlog
from django.apps import apps
from django.db import connections, transaction
from django.db.models import Model
from django.utils.timezone import now

from identity_platform.crypto import keyed_digest
from identity_platform.postgresql.statement_timeout import no_timeout
from identity_platform.postgresql.statements import execute
from identity_platform.postgresql.transactions import lift_timeouts
from identity_platform.restoring import Closed, Journaled, RestoredRow, Revocation
from tenants import keys
from tenants.entering.context import in_tenant
from tenants.entering.router import GLOBAL_ALIAS, lives_in_tenant
from tenants.entering.target import TENANT_ALIAS, DatabaseTarget, in_target
from tenants.failure_reasons import why
from tenants.models import JournaledRevocation, UndeliveredRevocation
from tenants.states import Purpose

log = structlog.get_logger("identity.tenants")

AT_ONCE: Final = 1000

# With arrays, as the ORM passes each value as a parameter. An older entry never replaces a newer one: a restored database may
# still have it to deliver.
_STORE: Final = (
    "INSERT INTO tenants_journaledrevocation AS known (tenant_id, kind, digest, revoked, noted_at, ends_at)"
    " SELECT %s, entry.* FROM unnest(%s::text[], %s::bytea[], %s::boolean[], %s::timestamptz[], %s::timestamptz[]) AS entry"
    " ON CONFLICT (tenant_id, kind, digest) DO UPDATE SET revoked = excluded.revoked, noted_at = excluded.noted_at,"
    " ends_at = excluded.ends_at WHERE excluded.noted_at >= known.noted_at"
)


def declared() -> Iterator[tuple[type[Model], Revocation]]:
    """Yield every journaled revocation with its model."""
    for model in apps.get_models():
        if lives_in_tenant(model) and isinstance(rule := getattr(model, "after_restore", None), Journaled):
            yield from ((model, revocation) for revocation in rule.revocations)


# --- delivering ------------------------------------------------------------------------------------------------------


def deliver(tenant_id: UUID, *, batches: int | None = None) -> bool:
    """Deliver revocations that wait in the tenant's database; return whether more wait. Safe to call concurrently.

    Raises UnknownTenant, TenantSuspended, TenantBusy, DataKeyLocked, and errors of either database.
    """
    with in_tenant(tenant_id, Purpose.RECORD):
        while batches is None or batches > 0:
            rows = list(UndeliveredRevocation.objects.order_by("pk")[:AT_ONCE])
            _store(tenant_id, rows)
            if rows:
                UndeliveredRevocation.objects.filter(pk__in=[row.pk for row in rows]).delete()
            if len(rows) < AT_ONCE:
                return False
            batches = None if batches is None else batches - 1
    return True


def deliver_read_only(tenant_id: UUID, database: DatabaseTarget) -> None:
    """Deliver what waits in a read-only database that is about to be dropped. Errors are logged: it may be damaged."""
    try:
        with in_target(database), no_timeout(), transaction.atomic(using=TENANT_ALIAS):
            lift_timeouts(TENANT_ALIAS)
            # In the order of their ids: the newest of one subject is stored last.
            rows = UndeliveredRevocation.objects.order_by("pk")
            last = 0
            while some := list(rows.filter(pk__gt=last)[:AT_ONCE]):
                _store(tenant_id, some)
                last = some[-1].pk
    except Exception as problem:
        log.warning("revocations_not_delivered", tenant=str(tenant_id), cause=why(problem), next="none")


def _store(tenant_id: UUID, rows: Sequence[UndeliveredRevocation]) -> None:
    if not rows:
        return
    newest = {(row.kind, _journaled(tenant_id, row.kind, bytes(row.digest))): row for row in rows}
    # In one order, so that two processes do not deadlock.
    entries = sorted(newest.items(), key=lambda entry: entry[0])
    execute(
        GLOBAL_ALIAS,
        _STORE,
        [
            tenant_id,
            [kind for (kind, _), _ in entries],
            [digest for (_, digest), _ in entries],
            [row.revoked for _, row in entries],
            [row.noted_at for _, row in entries],
            [row.ends_at for _, row in entries],
        ],
    )


def _journaled(tenant_id: UUID, kind: str, digest: bytes) -> bytes:
    """Return the digest in the journal. Without the key ring no guessed id or address can be tried on a copy of it."""
    value = f"{tenant_id} {kind} {digest.hex()}"
    return keyed_digest(value, key=keys.platform_key(), purpose="journal of revocations")


# --- after a restore -------------------------------------------------------------------------------------------------


def withdraw(tenant_id: UUID, database: DatabaseTarget) -> dict[str, int]:
    """Take back every authority that a restored database must not have; return numbers of rows by kind.

    In one transaction, before the database is in use. Models that are closed as a whole implement `close_all(moment)`.
    """
    with in_target(database), no_timeout(), transaction.atomic(using=TENANT_ALIAS):
        lift_timeouts(TENANT_ALIAS)
        return withdraw_here(tenant_id)


def withdraw_here(tenant_id: UUID) -> dict[str, int]:
    """Do the same in the database that is entered, in the caller's transaction."""
    for model in apps.get_models():
        if lives_in_tenant(model) and isinstance(getattr(model, "after_restore", None), Closed):
            model.close_all(now())  # type: ignore[attr-defined]
    ended: dict[str, int] = {}
    # Twice, since a user whose factors are removed must not sign in with the password alone.
    for model, revocation in [*declared(), *declared()]:
        if matches := find_revoked(tenant_id, model, revocation):
            for kind, number in _end(model, revocation, matches).items():
                ended[kind] = ended.get(kind, 0) + number
    return ended


def end_unless_granted(tenant_id: UUID, model: type[Model], kind: str, ids: Collection[Any]) -> dict[str, int]:
    """End an authority that rows of the entered database have got by the restore itself; return numbers of rows by kind.

    It stays where the journal has it as granted. What the journal does not know (it is older, or was purged) is the weakest
    case. Call it in the transaction of `withdraw`.
    """
    (revocation,) = [candidate for declaring, candidate in declared() if declaring is model and candidate.kind == kind]
    rows = list(_rows(model, revocation, ids))
    digests = {pk: _journaled(tenant_id, kind, bytes(digest)) for pk, _, digest, _ in rows}
    known = JournaledRevocation.objects.filter(tenant_id=tenant_id, kind=kind, revoked=False)
    granted = {
        bytes(journaled_digest)
        for journaled_digest in known.filter(digest__in=list(digests.values())).values_list("digest", flat=True)
    }
    matches = [RestoredRow(tenant_id, pk, subject, now()) for pk, subject, _, _ in rows if digests[pk] not in granted]
    return _end(model, revocation, matches) if matches else {}


def _end(model: type[Model], revocation: Revocation, matches: list[RestoredRow]) -> dict[str, int]:
    ended = {revocation.kind: len(matches)}
    for start in range(0, len(matches), AT_ONCE):
        some = matches[start : start + AT_ONCE]
        if revocation.ending:
            for kind, number in (getattr(model, revocation.ending)(some) or {}).items():
                ended[kind] = ended.get(kind, 0) + number
        else:
            _table(model, revocation)._base_manager.filter(pk__in=[match.pk for match in some]).delete()
    return ended


def _table(model: type[Model], revocation: Revocation) -> type[Model]:
    """Return the model whose rows are read: the one that declares it, or one of its many-to-many tables."""
    tables = {table._meta.db_table: table for table in apps.get_models(include_auto_created=True)}
    return tables.get(revocation.source, model)


def count_revoked(tenant_id: UUID) -> dict[str, int]:
    """Return the numbers of such rows of the entered database, by kind."""
    counts = {revocation.kind: len(find_revoked(tenant_id, model, revocation)) for model, revocation in declared()}
    return {kind: number for kind, number in counts.items() if number}


def find_revoked(tenant_id: UUID, model: type[Model], revocation: Revocation) -> list[RestoredRow]:
    """Return the rows of the entered database that have an authority which the journal has as revoked."""
    rows = JournaledRevocation.objects.filter(tenant_id=tenant_id, kind=revocation.kind, revoked=True)
    known = {bytes(digest): ends_at for digest, ends_at in rows.values_list("digest", "ends_at")}
    if not known:
        return []
    matches = []
    for pk, subject, digest, until in _rows(model, revocation):
        ends_at = known.get(_journaled(tenant_id, revocation.kind, bytes(digest)))
        if ends_at is not None and (not revocation.until or until is None or until > ends_at):
            matches.append(RestoredRow(tenant_id, pk, subject, ends_at))
    return matches


def _rows(
    model: type[Model], revocation: Revocation, ids: Collection[Any] | None = None
) -> Iterator[tuple[Any, str, bytes, datetime | None]]:
    """Yield the rows that have the authority: all, or those of `ids`."""
    source = revocation.source or model._meta.db_table
    key = _table(model, revocation)._meta.pk
    assert key is not None  # every model has one
    subject, until = f"concat_ws(' ', {revocation.columns})", revocation.until or "NULL::timestamptz"
    # A cursor of the server, as a table may be large: the caller is in a transaction.
    with connections[TENANT_ALIAS].chunked_cursor() as cursor:
        # All parts are constants of the models.
        cursor.execute(
            f"SELECT {key.column}, {subject}, sha256(convert_to({subject}, 'UTF8')), {until}"
            f" FROM {source} WHERE ({revocation.condition}){'' if ids is None else f' AND {key.column} = ANY(%s)'}",
            None if ids is None else [list(ids)],
        )
        while some := cursor.fetchmany(AT_ONCE):
            yield from some
