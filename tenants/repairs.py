"""What is wrong with the tenants' databases, and how it is put right.

Looking changes nothing. The databases of a server are listed before the mappings are read: a mapping always comes before
its database, so what is in the first list and not in the second belongs to nobody. A tenant that a job is working on is
not looked at.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from django.conf import settings

from identity_platform.audit.writer import record_for_platform
from tenants import databases, fleet, provisioning, relocation, warm_pool, webauthn_claims
from tenants.errors import JobRunning, UpgradeFailed
from tenants.models import DatabaseServer, TenantDatabase, WarmDatabase
from tenants.schema import is_older, schema_version, why
from tenants.states import State


class Kind(StrEnum):
    """What can be wrong."""

    SERVER = "server does not answer"
    HALF_MADE = "half made"
    LEFT_MIGRATING = "left migrating"
    LEFT_MOVING = "left moving"
    LEFT_DELETING = "left deleting"
    MISSING = "database missing"
    FAILED = "failed"
    ORPHAN = "orphan database"
    INVALID = "invalid database"
    OLD_TEMPLATE = "old template"
    HALF_MADE_SPARE = "half-made spare"
    LEFT_COPY = "left copy"
    MISSING_SPARE = "spare missing"
    OLD_SPARE = "old spare"
    SHARED_DOMAIN = "shared passkey domain"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `subject` is a tenant's slug or a database's name."""

    kind: Kind
    server: DatabaseServer
    subject: str
    message: str
    # None where only a person can decide.
    repair: Callable[[], object] | None = None
    # Whether the repair throws a database away that might be somebody's.
    drops_data: bool = False


def find_problems() -> list[Finding]:
    """Everything that is wrong at the moment, on all servers."""
    found = [finding for server in DatabaseServer.objects.order_by("name") for finding in _on(server)]
    return [*found, *_shared_domains()]


def repair(finding: Finding) -> str:
    """Put a finding right; gives why it could not be, or "" when it is done."""
    if finding.repair is None:
        return "a person must decide"
    try:
        finding.repair()
    except JobRunning:
        return "a job is working on it"
    except Exception as problem:
        # Whatever it is, the other findings are put right.
        return why(problem)
    record_for_platform("tenants.repaired", target=("database", finding.subject), details={"found": str(finding.kind)})
    return ""


def _on(server: DatabaseServer) -> Iterator[Finding]:
    try:
        with databases.maintenance_connection(server) as raw:
            names, invalid, held = databases.names(raw), databases.invalid_names(raw), databases.read_only_names(raw)
            there = names - invalid
            # In the order in which a database passes from one list to the next.
            spares = list(WarmDatabase.objects.filter(server=server))
            mappings = list(TenantDatabase.objects.select_related("tenant", "server").filter(server=server))
            for mapping in mappings:
                if _tenant(mapping, there, held) is None or databases.is_job_running(raw, mapping.pk):
                    continue
                # Looked at again, now that no job is at it: one may have ended between the two lists.
                mapping.refresh_from_db(fields=["status", "name", "server_id"])
                there_now = {mapping.name} if databases.exists(raw, mapping.name) else set()
                if found := _tenant(mapping, there_now, databases.read_only_names(raw)):
                    yield found
            yield from _copies(server, spares)
            if not databases.is_job_running(raw, databases.WARM_POOL_JOB):
                yield from _spares(server, spares, there)
            making = databases.is_job_running(raw, databases.TEMPLATE_JOB)
    except Exception as problem:
        # Also a URL that does not open: the other servers are looked at all the same.
        yield Finding(Kind.SERVER, server, server.name, why(problem))
        return
    somebodys = {mapping.name for mapping in mappings if mapping.status != State.DELETED} | {
        spare.name for spare in spares
    }
    for name in sorted(names - somebodys):
        if nobodys := _nobodys(server, name, making, is_invalid=name in invalid):
            yield nobodys


def _tenant(mapping: TenantDatabase, there: set[str], held: set[str]) -> Finding | None:
    def found(kind: Kind, says: str, remedy: Callable[[], object] | None) -> Finding:
        return Finding(kind, mapping.server, mapping.tenant.slug, says, remedy)

    present = mapping.name in there
    match mapping.status:
        case State.PROVISIONING:
            says = "its making was interrupted; a repair finishes it, without an admin"
            return found(Kind.HALF_MADE, says, lambda: _finish(mapping))
        case State.DELETING:
            says = "its deletion was interrupted; a repair finishes it"
            return found(Kind.LEFT_DELETING, says, lambda: provisioning.delete_tenant(tenant_id=mapping.pk))
        case State.DELETED:
            return None
        case State.FAILED if not present:
            return found(Kind.FAILED, f"{mapping.reason}; restore it from a backup or delete the tenant", None)
        case State.FAILED:
            return found(Kind.FAILED, "its database is there again; a repair makes it active", lambda: _revive(mapping))
        case _ if not present:
            says = f"the database {mapping.name} is gone or invalid; a repair marks the tenant as failed"
            return found(Kind.MISSING, says, lambda: _mark_failed(mapping))
        case State.MIGRATING:
            says = "its migration was interrupted; a repair goes on with it"
            return found(Kind.LEFT_MIGRATING, says, lambda: _go_on_migrating(mapping))
        case State.MOVING:
            # The mapping is switched last, so until then the old place is the whole truth.
            says = "its move was interrupted; a repair makes it active where it was"
            return found(Kind.LEFT_MOVING, says, lambda: _stay(mapping))
        case _ if mapping.name in held:
            says = "its move was interrupted and nothing can be written; a repair lets it be written into again"
            return found(Kind.LEFT_MOVING, says, lambda: relocation.clear_up(mapping.pk))
    return None


def _finish(mapping: TenantDatabase) -> None:
    provisioning.finish_provisioning(tenant_id=mapping.pk)


def _mark_failed(mapping: TenantDatabase) -> None:
    reason = "the database is missing"
    with databases.job_lock(mapping.server, mapping.pk) as raw:
        # Restored, perhaps, while a person was asked.
        provisioning.reload_mapping(mapping)
        if databases.exists(raw, mapping.name):
            return
        if mapping.status == State.SUSPENDED:
            # It is shut already, and must not come back open when its database does.
            TenantDatabase.objects.filter(pk=mapping.pk).update(reason=reason)
        else:
            provisioning.change_state(mapping.pk, State.FAILED, reason=reason)
        # Of an invalid one nothing can be read any more.
        databases.drop(raw, mapping.name)


def _revive(mapping: TenantDatabase) -> None:
    with databases.job_lock(mapping.server, mapping.pk):
        provisioning.change_state(mapping.pk, State.ACTIVE, only_from=State.FAILED)


def _stay(mapping: TenantDatabase) -> None:
    with databases.job_lock(mapping.server, mapping.pk) as raw:
        provisioning.reload_mapping(mapping)
        databases.make_writable(raw, mapping.name)
        provisioning.change_state(mapping.pk, State.ACTIVE, only_from=State.MOVING)


def _go_on_migrating(mapping: TenantDatabase) -> None:
    report = fleet.migrate_tenants(only=[mapping.tenant.slug])
    for failure in report.failed:
        raise UpgradeFailed(failure.reason)


def _spares(server: DatabaseServer, spares: list[WarmDatabase], there: set[str]) -> Iterator[Finding]:
    for spare in spares:
        if spare.schema_version != schema_version():
            if is_older(spare.schema_version):
                says = "a ready-made database of an older schema"
                yield Finding(Kind.OLD_SPARE, server, spare.name, says, lambda: _refill(server))
        elif not spare.ready:
            says = "the making of a ready-made database was interrupted"
            yield Finding(Kind.HALF_MADE_SPARE, server, spare.name, says, lambda: _refill(server))
        elif spare.name not in there:
            says = "a ready-made database is gone or invalid"
            yield Finding(Kind.MISSING_SPARE, server, spare.name, says, partial(_forget_spare, spare))


def _shared_domains() -> Iterator[Finding]:
    unclaimed = webauthn_claims.unclaimed()
    for mapping in TenantDatabase.objects.select_related("tenant", "server").filter(pk__in=unclaimed):
        names = ", ".join(unclaimed[mapping.pk])
        says = f"claimed elsewhere: {names}; change the passkey settings of one side, then a repair claims what is free"
        remedy = partial(webauthn_claims.claim_free_names, mapping.pk)
        yield Finding(Kind.SHARED_DOMAIN, mapping.server, mapping.tenant.slug, says, remedy)


def _copies(server: DatabaseServer, spares: list[WarmDatabase]) -> Iterator[Finding]:
    for spare in spares:
        if (tenant_id := relocation.meant_for(spare)) is not None:
            mapping = TenantDatabase.objects.select_related("server").get(pk=tenant_id)
            try:
                with databases.maintenance_connection(mapping.server) as raw:
                    if databases.is_job_running(raw, tenant_id):
                        continue
            except Exception as problem:
                says = f"whether a job still fills this copy is unknown: {mapping.server.name}: {why(problem)}"
                yield Finding(Kind.LEFT_COPY, server, spare.name, says)
                continue
            says = "a move or a restore was interrupted and left its copy"
            yield Finding(Kind.LEFT_COPY, server, spare.name, says, partial(relocation.clear_up, tenant_id))


def _refill(server: DatabaseServer) -> None:
    warm_pool.refill(server, settings.TENANT_WARM_POOL)


def _forget_spare(spare: WarmDatabase) -> None:
    # By name and readiness: it may have been claimed meanwhile, then there is no row.
    with databases.maintenance_connection(spare.server) as raw:
        if databases.exists(raw, spare.name):
            return
        if WarmDatabase.objects.filter(pk=spare.pk, ready=True).update(ready=False):
            databases.drop(raw, spare.name)
            WarmDatabase.objects.filter(pk=spare.pk).delete()


def _nobodys(server: DatabaseServer, name: str, template_in_the_making: bool, *, is_invalid: bool) -> Finding | None:
    def drop() -> None:
        claimed = TenantDatabase.objects.filter(server=server, name=name).exclude(status=State.DELETED)
        if not claimed.exists() and not WarmDatabase.objects.filter(server=server, name=name).exists():
            with databases.maintenance_connection(server) as raw:
                databases.drop(raw, name)

    if is_invalid:
        # Nothing can be read from it, whoever had it.
        return Finding(Kind.INVALID, server, name, "its DROP DATABASE was interrupted; a repair ends it", drop)
    if name.startswith(databases.template_prefix()):
        version = name.removeprefix(databases.template_prefix())
        half_made = version.endswith("_making") and not template_in_the_making
        if half_made or is_older(version.removesuffix("_making")):
            return Finding(Kind.OLD_TEMPLATE, server, name, "no tenant is made from it any more", drop)
        return None
    says = "no tenant and no spare has this database"
    return Finding(Kind.ORPHAN, server, name, says, drop, drops_data=True)
