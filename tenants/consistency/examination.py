"""Find where a tenant's database and the global one contradict each other, for example after one of them was restored.

No foreign key leads from one database to the other. Each app declares its `Reference`s and other checks, and is asked with the
hook `examinations`. Rows change while they are compared: only what is found twice, a second apart, is reported.
Finding changes nothing.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from uuid import UUID

from django.db import connections, transaction
from django.db.migrations.recorder import MigrationRecorder

from identity_platform.audit.models import ChainHead, TenantSeal
from identity_platform.audit.writer import record_for_platform, record_for_tenant
from identity_platform.postgresql.statement_timeout import no_timeout
from identity_platform.postgresql.transactions import lift_timeouts
from tenants import keys
from tenants.addresses import webauthn_claims
from tenants.consistency.findings import Finding, comparisons, examinations
from tenants.consistency.records import find_differing
from tenants.consistency.references import find_orphans
from tenants.entering.context import in_tenant
from tenants.entering.router import GLOBAL_ALIAS
from tenants.entering.schema import migration_names, schema_version
from tenants.entering.target import TENANT_ALIAS
from tenants.failure_reasons import why
from tenants.jobs.parallel import on_each_server
from tenants.journals import audit_trails, revocations
from tenants.journals.audit_trails import READABLE, Owner
from tenants.models import DataKey, DomainClaim, FinalBackup, Tenant, TenantDatabase, WebAuthnClaim
from tenants.records.tenant_records import TENANTS
from tenants.states import Purpose, State, allowing

SECOND_LOOK_SECONDS: Final = 1.0


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
            yield replace(finding, rows=rows)


def repair(owner: Owner, finding: Finding, *, overwrite_newer: bool = False) -> str:
    """Repair a finding in one transaction with its audit event; return why that failed, or an empty string.

    `overwrite_newer` is the decision of an operator (`Finding.overwrite`).
    """
    mend = finding.repair or (finding.overwrite if overwrite_newer else None)
    if mend is None:
        return "an operator must decide"
    try:
        with ExitStack() as entered:
            if owner.tenant_id is not None:
                entered.enter_context(in_tenant(owner.tenant_id, Purpose.RECORD))
            entered.enter_context(_without_timeouts(finding.alias))
            rows = mend(list(finding.rows))
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
def _without_timeouts(alias: str) -> Iterator[None]:
    """Open a transaction whose statements may take long: large tables are read as a whole."""
    with no_timeout(), transaction.atomic(using=alias):
        lift_timeouts(alias)
        yield


# --- one look --------------------------------------------------------------------------------------------------------


def _look(owner: Owner) -> list[Finding]:
    if owner.tenant_id is None:
        with _without_timeouts(GLOBAL_ALIAS):
            return [*_keys_without_owner(), *find_orphans(of_tenants=False), *_findings_of_apps(None)]
    return list(_look_at_tenant(owner.tenant_id))


def _look_at_tenant(tenant_id: UUID) -> Iterator[Finding]:
    mapping = TenantDatabase.objects.select_related("tenant").get(pk=tenant_id)
    if mapping.schema_version != schema_version():
        raise NotExaminable("its schema is not that of this release: run migrate_tenants")
    yield from _passkey_claims(mapping.tenant)
    # Read before the tenant's rows, which may be sealed meanwhile.
    head = ChainHead.objects.filter(pk=str(tenant_id)).first()
    with in_tenant(tenant_id, Purpose.INSPECT), _without_timeouts(TENANT_ALIAS):
        if behind := list(_schema(mapping)):
            yield from behind
            # Statements on tables that it lacks would fail.
            return
        yield from _data_key(tenant_id)
        yield from _chain(head)
        yield from find_differing("tenant record", TENANTS, tenant_id)
        yield from _revoked(tenant_id)
        yield from find_orphans(of_tenants=True)
        yield from _findings_of_apps(tenant_id)
    # In a transaction of its own: it locks rows.
    if mapping.status in allowing(Purpose.RECORD):
        yield from _domains(tenant_id)


def _findings_of_apps(tenant_id: UUID | None) -> Iterator[Finding]:
    for findings in examinations.call(tenant_id):
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
    from_settings = webauthn_claims.names_of(tenant.settings)
    domains = set(DomainClaim.objects.filter(tenant=tenant, sign_in=True).values_list("pk", flat=True))
    claimed = set(WebAuthnClaim.objects.filter(tenant=tenant).values_list("pk", flat=True))
    if missing := (from_settings | domains) - claimed - webauthn_claims.platform_names():
        yield Finding(
            "unclaimed passkey domain",
            dict.fromkeys(sorted(missing), 1),
            "The tenant uses these names for its passkeys without having claimed them, so another tenant can.",
            "--repair claims the free ones; for the others change the settings of one tenant.",
            lambda ids: _claim(tenant.pk),
            GLOBAL_ALIAS,
        )
    if unused := claimed - from_settings - domains:
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
    for differences, record in comparisons.call(tenant_id):
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
