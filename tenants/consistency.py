"""Find where a tenant's database and the global one contradict each other, for example after one of them was restored.

No foreign key leads from one database to the other. Each app declares its `Reference`s and other checks, and is asked with the
signal `consistency_examined`. Rows change while they are compared: only what is found twice, a second apart, is reported.
Finding changes nothing.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.apps import apps
from django.conf import settings
from django.db import connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import CASCADE, SET_NULL, Count, Exists, ForeignKey, Model, OuterRef, Q
from django.utils.timezone import now

from identity_platform.audit.models import ChainHead, PlatformEvent, TenantSeal
from identity_platform.audit.writer import record_for_platform, record_for_tenant
from identity_platform.postgresql.statement_timeout import no_timeout
from tenants import audit_trails, keys, revocations, webauthn_claims
from tenants.audit_trails import READABLE, Owner
from tenants.context import in_tenant
from tenants.models import DataKey, DomainClaim, FinalBackup, Tenant, TenantDatabase, WebAuthnClaim
from tenants.parallel import on_each_server
from tenants.router import GLOBAL_ALIAS, lives_in_tenant
from tenants.schema import migration_names, own_apps, schema_version, why
from tenants.signals import consistency_examined, tenant_compared
from tenants.states import Purpose, State, allowing
from tenants.target import TENANT_ALIAS

# Of one kind of finding. More are found once these are repaired.
MOST_IDS: Final = 10_000
SECOND_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction. `rows` maps ids to numbers of rows; ids are never personal data."""

    kind: str
    rows: Mapping[str, int]
    meaning: str
    remedy: str
    # Gets ids of `rows`, and returns how many rows it has changed. It runs in a transaction of the database `alias`, with the
    # tenant entered. None if only an operator can decide.
    repair: Callable[[Collection[str]], int] | None = None
    alias: str = TENANT_ALIAS

    @property
    def count(self) -> int:
        return sum(self.rows.values())


@dataclass(frozen=True, slots=True)
class Reference:
    """A column with ids of rows in the other kind of database.

    `deleted` is the audit action of the platform by which those rows are deleted, if ids of deleted rows may remain; `created`
    is then the column with the time of the referring row, since audit events are kept for a limited time. `among` limits the
    rows at a moment, `pending` returns ids that a job is about to remove.
    """

    model: type[Model]
    column: str
    to: type[Model]
    kind: str
    meaning: str
    remedy: str
    deleted: str = ""
    created: str = "created_at"
    among: Callable[[datetime], Q] = lambda moment: Q()
    pending: Callable[[UUID], Collection[UUID]] = lambda tenant_id: ()
    repair: Callable[[Collection[str]], int] | None = None
    # Whether the rows referred to are of the same tenant.
    of_tenant: bool = True


@dataclass(frozen=True, slots=True)
class Examined:
    """The findings about one tenant, or about the platform. `problem` has the reason if it could not be examined."""

    owner: Owner
    findings: list[Finding] = field(default_factory=list)
    problem: str = ""


class NotExaminable(Exception):
    """The tenant cannot be examined now. Its text is for operators."""


# --- all tenants -----------------------------------------------------------------------------------------------------


def examine_all(
    only: Sequence[str] = (),
    *,
    jobs: int = 2,
    start: Callable[[int], None] = lambda total: None,
    progress: Callable[[Examined], None] = lambda examined: None,
) -> list[Examined]:
    """Examine the platform and every tenant, or those in `only` (slugs, ids, `platform`); return the results, by name.

    `jobs` tenants at a time on each server. Raises UnknownTenant.
    """
    owners = audit_trails.owners(only, states=(*READABLE, State.FAILED))
    by_id = {owner.tenant_id: owner for owner in owners}
    mappings = TenantDatabase.objects.select_related("server").filter(pk__in=[pk for pk in by_id if pk is not None])
    start(len(owners))
    results = []

    def note(examined: Examined) -> None:
        results.append(examined)
        progress(examined)

    if None in by_id:
        note(examine(by_id[None]))
    for examined in on_each_server(list(mappings), jobs, lambda mapping: examine(by_id[mapping.pk])):
        note(examined)
    return sorted(results, key=lambda examined: (examined.owner.tenant_id is not None, examined.owner.name))


def examine(owner: Owner) -> Examined:
    """Examine one tenant or the platform. Errors are returned, not raised."""
    try:
        first = _look(owner)
        if not first:
            return Examined(owner)
        time.sleep(SECOND_LOOK_SECONDS)
        return Examined(owner, list(_confirmed(first, _look(owner))))
    except NotExaminable as problem:
        return Examined(owner, problem=str(problem))
    except Exception as problem:
        # The other tenants are examined all the same.
        return Examined(owner, problem=why(problem))


def _confirmed(first: Iterable[Finding], second: Iterable[Finding]) -> Iterator[Finding]:
    before = {finding.kind: finding.rows.keys() for finding in first}
    for finding in second:
        rows = {name: number for name, number in finding.rows.items() if name in before.get(finding.kind, ())}
        if rows:
            yield Finding(finding.kind, rows, finding.meaning, finding.remedy, finding.repair, finding.alias)


def repair(owner: Owner, finding: Finding) -> str:
    """Repair a finding in one transaction with its audit event; return why that failed, or an empty string."""
    if finding.repair is None:
        return "an operator must decide"
    try:
        with ExitStack() as entered:
            if owner.tenant_id is not None:
                entered.enter_context(in_tenant(owner.tenant_id, Purpose.RECORD))
            entered.enter_context(_patient(finding.alias))
            rows = finding.repair(list(finding.rows))
            _record(owner, finding, rows)
    except Exception as problem:
        return why(problem)
    return ""


def _record(owner: Owner, finding: Finding, rows: int) -> None:
    action, details = "consistency.repaired", {"found": finding.kind, "rows": rows}
    target = ("tenant", owner.tenant_id) if owner.tenant_id is not None else None
    if finding.alias == TENANT_ALIAS:
        record_for_tenant(action, target=target, details=details)
    else:
        record_for_platform(action, tenant_id=owner.tenant_id, target=target, details=details)


@contextmanager
def _patient(alias: str) -> Iterator[None]:
    """Open a transaction whose statements may take long: large tables are read as a whole."""
    with no_timeout(), transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


# --- one look --------------------------------------------------------------------------------------------------------


def _look(owner: Owner) -> list[Finding]:
    if owner.tenant_id is None:
        with _patient(GLOBAL_ALIAS):
            return [*_keys_without_owner(), *_orphans(of_tenants=False), *_asked(None)]
    return list(_look_at_tenant(owner.tenant_id))


def _look_at_tenant(tenant_id: UUID) -> Iterator[Finding]:
    mapping = TenantDatabase.objects.select_related("tenant").get(pk=tenant_id)
    if mapping.schema_version != schema_version():
        raise NotExaminable("its schema is not that of this release: run migrate_tenants")
    yield from _passkey_claims(mapping.tenant)
    # Read before the tenant's rows, which may be sealed meanwhile.
    head = ChainHead.objects.filter(pk=str(tenant_id)).first()
    with in_tenant(tenant_id, Purpose.INSPECT), _patient(TENANT_ALIAS):
        if behind := list(_schema(mapping)):
            yield from behind
            # Statements on tables that it lacks would fail.
            return
        yield from _data_key(tenant_id)
        yield from _chain(head)
        yield from _revoked(tenant_id)
        yield from _orphans(of_tenants=True)
        yield from _asked(tenant_id)
    # In a transaction of its own: it locks rows.
    if mapping.status in allowing(Purpose.RECORD):
        yield from _domains(tenant_id)


def _asked(tenant_id: UUID | None) -> Iterator[Finding]:
    answers: Sequence[tuple[object, Any]] = consistency_examined.send(sender=TenantDatabase, tenant_id=tenant_id)
    for _, findings in answers:
        yield from findings


def _schema(mapping: TenantDatabase) -> Iterator[Finding]:
    missing = migration_names() - MigrationRecorder(connections[TENANT_ALIAS]).applied_migrations().keys()
    if missing:
        yield Finding(
            "schema",
            {f"{label}.{name}": 1 for label, name in missing},
            "The global database says that these migrations have run, and they have not.",
            "--repair corrects the record; then run migrate_tenants, and check again.",
            lambda ids: TenantDatabase.objects.filter(pk=mapping.pk).update(schema_version=""),
            GLOBAL_ALIAS,
        )


def _data_key(tenant_id: UUID) -> Iterator[Finding]:
    if not keys.is_readable(str(tenant_id)):
        yield Finding(
            "data key",
            {str(tenant_id): 1},
            "The tenant's data key is missing or does not open with ENCRYPTION_KEYS, so nothing that is sealed can be read.",
            "Add the missing ring key, or restore the global database from a backup that has the data key.",
        )


def _keys_without_owner() -> Iterator[Finding]:
    existing = TenantDatabase.objects.exclude(status=State.DELETED).values_list("pk", flat=True)
    known = {DataKey.PLATFORM, *map(str, existing), *map(str, FinalBackup.objects.values_list("pk", flat=True))}
    if rows := {owner: 1 for owner in DataKey.objects.values_list("pk", flat=True) if owner not in known}:
        yield Finding(
            "data key without tenant",
            rows,
            "No tenant and no final backup needs these data keys. They open what is left of deleted tenants.",
            "Find out why; a key may open the only backup of a tenant.",
        )


def _chain(head: ChainHead | None) -> Iterator[Finding]:
    """Compare the end of the audit chain with the copy in the global database; `verify_audit` reads the whole chain."""
    if head is not None and not TenantSeal.objects.filter(number=head.number, mac=bytes(head.mac)).exists():
        yield Finding(
            "audit chain",
            {str(head.number): 1},
            "The audit log ends before, or differs at, the link that the global database has as its end: the tenant's database "
            "is older than the global one, or was altered.",
            "Run verify_audit; if the tenant was restored, verify_audit --accept-end.",
        )


def _revoked(tenant_id: UUID) -> Iterator[Finding]:
    if rows := revocations.count_revoked(tenant_id):
        yield Finding(
            "revoked authority",
            rows,
            "The journal has these as revoked, and the tenant's database has them: it was restored to an earlier moment, "
            "not by restore_tenant.",
            "--repair revokes them again, and ends all sessions, links and invitations, as restore_tenant does.",
            lambda ids: sum(revocations.withdraw_here(tenant_id).values()),
        )


def is_cut_off(tenant_id: UUID) -> bool:
    """Return whether the entered tenant's audit chain ends before its end in the global database, as after a restore."""
    head = ChainHead.objects.filter(pk=str(tenant_id)).first()
    return any(_chain(head))


def _passkey_claims(tenant: Tenant) -> Iterator[Finding]:
    wanted = webauthn_claims.names_of(tenant.settings)
    domains = set(DomainClaim.objects.filter(tenant=tenant, sign_in=True).values_list("pk", flat=True))
    held = set(WebAuthnClaim.objects.filter(tenant=tenant).values_list("pk", flat=True))
    if missing := (wanted | domains) - held - webauthn_claims.platform_names():
        yield Finding(
            "unclaimed passkey domain",
            dict.fromkeys(sorted(missing), 1),
            "The tenant uses these names for its passkeys without having claimed them, so another tenant can.",
            "--repair claims the free ones; for the others change the settings of one tenant.",
            lambda ids: _claim(tenant.pk),
            GLOBAL_ALIAS,
        )
    if unused := held - wanted - domains:
        yield Finding(
            "unused passkey claim",
            dict.fromkeys(sorted(unused), 1),
            "The tenant has claimed these names and uses none of them, so no other tenant can.",
            "--repair frees them.",
            lambda ids: WebAuthnClaim.objects.filter(tenant=tenant, pk__in=ids).delete()[0],
            GLOBAL_ALIAS,
        )


def _claim(tenant_id: UUID) -> int:
    before = WebAuthnClaim.objects.filter(tenant_id=tenant_id).count()
    webauthn_claims.claim_free_names(tenant_id)
    for claim in DomainClaim.objects.filter(tenant_id=tenant_id, sign_in=True):
        webauthn_claims.claim_sign_in_domain(tenant_id, claim.domain)
    return WebAuthnClaim.objects.filter(tenant_id=tenant_id).count() - before


def _domains(tenant_id: UUID) -> Iterator[Finding]:
    answers: Sequence[tuple[object, Any]] = tenant_compared.send(sender=TenantDatabase, tenant_id=tenant_id)
    for _, (differences, record) in answers:
        if differences:
            yield Finding(
                "domains",
                dict.fromkeys(differences, 1),
                "The tenant's database has not recorded what has become of its domains.",
                "--repair records it there, with audit events and webhook messages.",
                partial(_run, record),
            )


def _run(record: Callable[[], None], ids: Collection[str]) -> int:
    record()
    return len(ids)


# --- references ------------------------------------------------------------------------------------------------------


def oldest_explained() -> datetime:
    """Return since when the audit log of the platform explains every deletion."""
    return now() - timedelta(days=settings.AUDIT_RETENTION_DAYS - 1)


def find_missing(references: Iterable[Reference], tenant_id: UUID) -> Iterator[Finding]:
    """Yield a finding for each reference of the entered tenant whose rows refer to something that does not exist."""
    for reference in references:
        rows = reference.model._base_manager.filter(reference.among(now())).exclude(**{reference.column: None})
        if reference.deleted:
            rows = rows.filter(**{f"{reference.created}__gte": oldest_explained()})
        # The rows first: what they refer to is created before them.
        found = dict(rows.order_by().values_list(reference.column).annotate(Count("pk")))
        for known in (_existing(reference, found, tenant_id), _deleted(reference, found), reference.pending(tenant_id)):
            for known_id in known:
                found.pop(known_id, None)
        if found:
            yield Finding(
                reference.kind,
                {str(referred): number for referred, number in sorted(found.items())[:MOST_IDS]},
                reference.meaning,
                reference.remedy,
                reference.repair,
            )


def _existing(reference: Reference, ids: Collection[UUID], tenant_id: UUID) -> Iterator[UUID]:
    rows = reference.to._base_manager.filter(pk__in=list(ids))
    if reference.of_tenant:
        rows = rows.filter(tenant_id=tenant_id)
    yield from rows.values_list("pk", flat=True)


def _deleted(reference: Reference, ids: Collection[UUID]) -> Iterator[UUID]:
    if reference.deleted and ids:
        events = PlatformEvent.objects.filter(action=reference.deleted, target_id__in=[str(one) for one in ids])
        yield from (UUID(target) for target in events.values_list("target_id", flat=True))


def _orphans(*, of_tenants: bool) -> Iterator[Finding]:
    """Find rows whose foreign key leads nowhere: PostgreSQL allows none, unless its checks were disabled."""
    own = set(own_apps())
    for model in apps.get_models(include_auto_created=True):
        if model._meta.app_label not in own or not model._meta.managed or lives_in_tenant(model) != of_tenants:
            continue
        for column in model._meta.concrete_fields:
            if isinstance(column, ForeignKey):
                yield from _orphans_of(model, column)


def _orphans_of(model: type[Model], column: "ForeignKey[Any, Any]") -> Iterator[Finding]:
    target: Any = column.related_model
    lost = model._base_manager.exclude(**{column.attname: None}).filter(
        ~Exists(target._base_manager.filter(**{column.target_field.attname: OuterRef(column.attname)}))
    )
    rows = {_text(pk): 1 for pk in lost.values_list("pk", flat=True)[:MOST_IDS]}
    if not rows:
        return
    on_delete = column.remote_field.on_delete

    def repair(ids: Collection[str]) -> int:
        if on_delete is SET_NULL:
            return lost.all().update(**{column.attname: None})
        return lost.all().delete()[0]

    remedies: dict[object, str] = {
        CASCADE: "--repair deletes them, as the deletion would have.",
        SET_NULL: "--repair removes the reference.",
    }
    yield Finding(
        f"orphaned rows of {model._meta.db_table}.{column.column}",
        rows,
        f"The rows that they refer to, in {target._meta.db_table}, are gone.",
        remedies.get(on_delete, "Restore the database from a backup."),
        repair if on_delete in remedies else None,
        TENANT_ALIAS if lives_in_tenant(model) else GLOBAL_ALIAS,
    )


def _text(pk: object) -> str:
    return bytes(pk).hex()[:16] if isinstance(pk, bytes | memoryview) else str(pk)


def sealed_finding(what: str, ids: Collection[object], remedy: str, *, alias: str = TENANT_ALIAS) -> Iterator[Finding]:
    """Yield a finding about sealed values that do not open with their owner's data key, if there are any."""
    if ids:
        yield Finding(
            f"unreadable {what}",
            {str(one): 1 for one in list(ids)[:MOST_IDS]},
            "They were sealed under another data key or for another row.",
            remedy,
            alias=alias,
        )
