"""Find and repair problems of tenant databases.

Finding changes nothing. A server's databases are listed before the mappings are read: a mapping always comes before its
database, so a database in the first list without a mapping belongs to no tenant. Tenants with a running job are skipped.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from django.conf import settings
from django.db import transaction

from identity_platform.audit.writer import record_for_platform
from tenants.addresses import domain_claims, webauthn_claims
from tenants.consistency.findings import comparisons
from tenants.consistency.orphans import OrphanKept, why_needed
from tenants.copies import databases
from tenants.database_servers import fences, marks, replication, servers
from tenants.entering.schema import is_older, schema_version
from tenants.errors import JobRunning, UpgradeFailed
from tenants.failure_reasons import why
from tenants.jobs import fleet, relocation
from tenants.jobs.parallel import on_each_server
from tenants.lifecycle import provisioning, transitions, warm_pool
from tenants.models import DatabaseServer, TenantDatabase, WarmDatabase
from tenants.records import reconciling
from tenants.states import Purpose, State, allowing

_USABLE = (State.ACTIVE, State.SUSPENDED)


class Kind(StrEnum):
    FENCED = "fenced installation"
    SERVER = "server unreachable"
    PROVISIONING = "interrupted provisioning"
    MIGRATING = "interrupted migration"
    MOVING = "interrupted move"
    DELETING = "interrupted deletion"
    MISSING = "database missing"
    FAILED = "failed"
    ORPHAN = "orphan database"
    INVALID = "invalid database"
    OLD_TEMPLATE = "outdated template"
    UNFINISHED_SPARE = "unfinished spare"
    LEFT_COPY = "leftover copy"
    LEFT_SLOT = "forgotten replication slot"
    MISSING_SPARE = "missing spare"
    OLD_SPARE = "outdated spare"
    CLAIMED_SPARE = "spare of a tenant"
    FOREIGN = "foreign database"
    UNMARKED = "unmarked database"
    SHARED_DOMAIN = "shared passkey domain"
    DOMAINS = "outdated domains"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. `subject` is a tenant's slug or a database's name."""

    kind: Kind
    server: DatabaseServer
    subject: str
    message: str
    # None if only an operator can decide.
    repair: Callable[[], object] | None = None
    # Whether the repair drops a database that may belong to a tenant.
    drops_data: bool = False


def find_problems() -> list[Finding]:
    """Return the current problems of all servers."""
    attached_servers = DatabaseServer.objects.filter(detached=False).order_by("name")
    server_findings = [finding for server in attached_servers for finding in _on_server(server)]
    unreachable = {finding.server.pk for finding in server_findings if finding.kind is Kind.SERVER}
    return [
        *_fence(),
        *server_findings,
        *_marks_of_tenants(unreachable),
        *_shared_domains(),
        *_outdated_domains(unreachable),
    ]


def _fence() -> Iterator[Finding]:
    """Find why the installation must not use its servers: other findings then may be about production's databases."""
    server = DatabaseServer.objects.order_by("name").first()
    if server is None:
        return
    for reason in fences.reasons():
        advice = "run adopt_installation if this is production now, or detach_installation if this is a copy"
        yield Finding(Kind.FENCED, server, "installation", f"{reason.removesuffix('.')}; {advice}")


def repair(finding: Finding) -> str:
    """Repair a problem; return why that failed, or an empty string.

    Raises InstallationFenced: a copy of the installation may report what it finds, and must not change production's servers.
    """
    fences.require()
    if finding.repair is None:
        return "an operator must decide"
    try:
        finding.repair()
    except JobRunning:
        return "a job is working on it"
    except Exception as problem:
        # The other problems are repaired all the same.
        return why(problem)
    record_for_platform("tenants.repaired", target=("database", finding.subject), details={"found": str(finding.kind)})
    return ""


def _on_server(server: DatabaseServer) -> Iterator[Finding]:
    try:
        with servers.maintenance(server) as raw:
            names, invalid = databases.names(raw), databases.invalid_names(raw)
            read_only = databases.read_only_names(raw)
            existing = names - invalid
            # In the order in which a database passes from one list to the next.
            spares = list(WarmDatabase.objects.filter(server=server))
            mappings = list(TenantDatabase.objects.select_related("tenant", "server").filter(server=server))
            for mapping in mappings:
                if _of_tenant(mapping, existing, read_only) is None or databases.is_job_running(raw, mapping.pk):
                    continue
                # Checked again without a running job: one may have ended between the two lists.
                mapping.refresh_from_db(fields=["status", "name", "server_id"])
                exists_now = {mapping.name} if databases.exists(raw, mapping.name) else set()
                if finding := _of_tenant(mapping, exists_now, databases.read_only_names(raw)):
                    yield finding
            yield from _copies(server, spares)
            yield from _slots(raw, server)
            if not databases.is_job_running(raw, databases.WARM_POOL_JOB):
                yield from _spares(server, spares, existing)
            template_job = databases.is_job_running(raw, databases.TEMPLATE_JOB)
    except Exception as problem:
        # Also a URL that cannot be decrypted. The other servers are checked all the same.
        message = f"{why(problem)}; its tenants were not checked: run this again when it responds"
        yield Finding(Kind.SERVER, server, server.name, message)
        return
    owned = {mapping.name for mapping in mappings if mapping.status != State.DELETED} | {spare.name for spare in spares}
    for name in sorted(names - owned):
        if unowned := _unowned(server, name, template_job, is_invalid=name in invalid):
            yield unowned


def _of_tenant(mapping: TenantDatabase, existing: set[str], read_only: set[str]) -> Finding | None:
    def finding(kind: Kind, message: str, repair: Callable[[], object] | None) -> Finding:
        return Finding(kind, mapping.server, mapping.tenant.slug, message, repair)

    exists = mapping.name in existing
    match mapping.status:
        case State.PROVISIONING:
            message = "provisioning was interrupted; the repair finishes it, without an admin"
            return finding(Kind.PROVISIONING, message, lambda: provisioning.finish_provisioning(tenant_id=mapping.pk))
        case State.DELETING:
            message = "deletion was interrupted; the repair finishes it"
            return finding(Kind.DELETING, message, lambda: provisioning.delete_tenant(tenant_id=mapping.pk))
        case State.DELETED:
            return None
        case State.FAILED if not exists:
            return finding(Kind.FAILED, f"{mapping.reason}; restore it from a backup or delete the tenant", None)
        case State.FAILED:
            message = "its database exists again; the repair activates the tenant"
            return finding(Kind.FAILED, message, lambda: _activate(mapping))
        case _ if not exists:
            message = f"the database {mapping.name} is missing or invalid; the repair marks the tenant as failed"
            return finding(Kind.MISSING, message, lambda: _mark_failed(mapping))
        case State.MIGRATING:
            message = "migration was interrupted; the repair continues it"
            return finding(Kind.MIGRATING, message, lambda: _continue_migration(mapping))
        case State.MOVING:
            # The mapping is switched last, so until then the old database is the valid one.
            message = "the move was interrupted; the repair activates the tenant on its old server"
            return finding(Kind.MOVING, message, lambda: _undo_move(mapping))
        case _ if mapping.name in read_only:
            message = "a move was interrupted and the database is read-only; the repair makes it writable"
            return finding(Kind.MOVING, message, lambda: relocation.clear_up(mapping.pk))
    return None


def _mark_failed(mapping: TenantDatabase) -> None:
    reason = "the database is missing"
    with databases.job_lock(mapping.server, mapping.pk) as raw:
        # It may have been restored while the operator was asked.
        transitions.reload_mapping(mapping)
        if databases.exists(raw, mapping.name):
            return
        if mapping.status == State.SUSPENDED:
            # It stays suspended, also once its database exists again.
            TenantDatabase.objects.filter(pk=mapping.pk).update(reason=reason)
        else:
            # A database that exists again has the record of an active tenant. First, so that no failed tenant lacks the mark.
            TenantDatabase.objects.filter(pk=mapping.pk).update(copies_lag=True)
            transitions.change_state(mapping.pk, State.FAILED, reason=reason)
        # An invalid database cannot be read.
        databases.drop(raw, mapping.name)


def _activate(mapping: TenantDatabase) -> None:
    with databases.job_lock(mapping.server, mapping.pk), transaction.atomic():
        transitions.change_state(mapping.pk, State.ACTIVE, only_from=State.FAILED)
        reconciling.apply_all(mapping.pk)


def _undo_move(mapping: TenantDatabase) -> None:
    with databases.job_lock(mapping.server, mapping.pk) as raw:
        transitions.reload_mapping(mapping)
        databases.make_writable(raw, mapping.name)
        transitions.change_state(mapping.pk, State.ACTIVE, only_from=State.MOVING, by_job=True)


def _continue_migration(mapping: TenantDatabase) -> None:
    report = fleet.migrate_tenants(only=[mapping.tenant.slug])
    for failure in report.failed:
        raise UpgradeFailed(failure.reason)


def _spares(server: DatabaseServer, spares: list[WarmDatabase], existing: set[str]) -> Iterator[Finding]:
    refill = partial(warm_pool.refill, server, settings.TENANT_WARM_POOL)
    for spare in spares:
        if spare.schema_version == warm_pool.SET_ASIDE:
            if spare.name in existing:
                message = (
                    f"set aside: {_owner(server, spare)}; find the tenant that it belongs to, or drop it by hand if you know "
                    f'that it is not needed: DROP DATABASE "{spare.name}", then --repair forgets it'
                )
                yield Finding(Kind.CLAIMED_SPARE, server, spare.name, message)
            else:
                yield Finding(
                    Kind.MISSING_SPARE,
                    server,
                    spare.name,
                    "a spare that was set aside is gone; the repair forgets it",
                    spare.delete,
                )
        elif spare.name in existing and relocation.copy_of(spare) is None and (owner := _owner(server, spare)):
            message = f"{owner}; the repair sets it aside, so that no new tenant gets it"
            yield Finding(Kind.CLAIMED_SPARE, server, spare.name, message, partial(warm_pool.set_aside, spare.name))
        elif spare.schema_version != schema_version():
            if is_older(spare.schema_version):
                yield Finding(
                    Kind.OLD_SPARE,
                    server,
                    spare.name,
                    "a spare database of an older schema; the repair replaces it",
                    refill,
                )
        elif not spare.ready:
            message = "the creation of a spare database was interrupted; the repair replaces it"
            yield Finding(Kind.UNFINISHED_SPARE, server, spare.name, message, refill)
        elif spare.name not in existing:
            message = "a spare database is missing or invalid; the repair forgets it"
            yield Finding(Kind.MISSING_SPARE, server, spare.name, message, partial(_forget_spare, spare))


def _owner(server: DatabaseServer, spare: WarmDatabase) -> str:
    try:
        return marks.owner_of_spare(server, spare.name, fences.stored_id())
    except Exception as problem:
        return f"its mark cannot be read: {why(problem)}"


def _marks_of_tenants(unreachable: set[int]) -> Iterator[Finding]:
    """Find tenants whose database carries another mark than theirs, or none although its schema has one."""
    mappings = TenantDatabase.objects.select_related("tenant", "server").exclude(server__in=unreachable)
    usable = mappings.filter(server__detached=False, schema_version=schema_version(), status__in=_USABLE)
    for finding in on_each_server(list(usable), 2, _mark_of):
        if finding is not None:
            yield finding


def _mark_of(mapping: TenantDatabase) -> Finding | None:
    finding = partial(Finding, server=mapping.server, subject=mapping.tenant.slug)
    try:
        mark = marks.read(mapping.server, mapping.name)
    except Exception:
        # Missing and moving databases are found by other checks.
        return None
    if mark is None:
        message = "its database has no mark; the repair trusts the global database and marks it as the tenant's"
        return finding(Kind.UNMARKED, message=message, repair=partial(_stamp, mapping))
    if (mark.installation, mark.tenant_id) != (fences.stored_id(), mapping.pk):
        message = (
            f"its database {mapping.name} belongs to {mark.owner}; find the tenant's own, or restore it from a backup"
        )
        return finding(Kind.FOREIGN, message=message)
    return None


def _stamp(mapping: TenantDatabase) -> None:
    with databases.job_lock(mapping.server, mapping.pk):
        transitions.reload_mapping(mapping)
        marks.stamp_unmarked(mapping.server, mapping.name, mapping.pk)
        reconciling.apply_all(mapping.pk, direct=True)


def _shared_domains() -> Iterator[Finding]:
    unclaimed = webauthn_claims.unclaimed()
    for mapping in TenantDatabase.objects.select_related("tenant", "server").filter(pk__in=unclaimed):
        names = ", ".join(unclaimed[mapping.pk])
        message = (
            f"claimed elsewhere: {names}; change the passkey settings of one tenant, then the repair claims free names"
        )
        claim = partial(webauthn_claims.claim_free_names, mapping.pk)
        yield Finding(Kind.SHARED_DOMAIN, mapping.server, mapping.tenant.slug, message, claim)


def _outdated_domains(unreachable: set[int]) -> Iterator[Finding]:
    """Find tenants whose database has not recorded what has become of their domains, such as after a restore."""
    mappings = TenantDatabase.objects.select_related("tenant", "server").exclude(server__in=unreachable)
    usable = mappings.filter(status__in=allowing(Purpose.RECORD), pk__in=domain_claims.tenants_with_domains())
    for mapping in usable:
        finding = partial(Finding, Kind.DOMAINS, mapping.server, mapping.tenant.slug)
        try:
            for differences, repair in comparisons.call(mapping.pk):
                if differences:
                    yield finding(f"{'; '.join(differences)}; the repair records this in the tenant's database", repair)
        except Exception as problem:
            yield finding(f"the domains cannot be compared: {why(problem)}; run this again when its database responds")


def _copies(server: DatabaseServer, spares: list[WarmDatabase]) -> Iterator[Finding]:
    for spare in spares:
        tenant_id = relocation.copy_of(spare)
        if tenant_id is None:
            continue
        mapping = TenantDatabase.objects.select_related("server").get(pk=tenant_id)
        try:
            with servers.maintenance(mapping.server) as raw:
                running = databases.is_job_running(raw, tenant_id)
        except Exception as problem:
            message = (
                f"it is unknown if a job still fills this copy: {mapping.server.name}: {why(problem)}; run this again when it "
                "responds"
            )
            yield Finding(Kind.LEFT_COPY, server, spare.name, message)
            continue
        if not running:
            message = "an interrupted move or restore left its copy; the repair drops it"
            yield Finding(Kind.LEFT_COPY, server, spare.name, message, partial(relocation.clear_up, tenant_id))


def _slots(raw: databases.Raw, server: DatabaseServer) -> Iterator[Finding]:
    """Find slots of moves without a copy, such as after the global database was restored. Others go with the copy."""
    for slot in replication.slots(raw):
        if relocation.has_copy(slot.tenant_id) or databases.is_job_running(raw, slot.tenant_id):
            continue
        # The move may have ended since the slots were listed.
        if slot in replication.slots(raw):
            message = "an interrupted move left it, and it fills the server's disk with WAL; the repair drops it"
            yield Finding(Kind.LEFT_SLOT, server, slot.database, message, partial(_drop_slot, server, slot))


def _drop_slot(server: DatabaseServer, slot: replication.Slot) -> None:
    with databases.job_lock(server, slot.tenant_id) as raw:
        replication.unpublish(raw, slot.database)


def _forget_spare(spare: WarmDatabase) -> None:
    # A spare that was claimed meanwhile has no row any more.
    with servers.maintenance(spare.server) as raw:
        if databases.exists(raw, spare.name):
            return
        if WarmDatabase.objects.filter(pk=spare.pk, ready=True).update(ready=False):
            databases.drop(raw, spare.name)
            WarmDatabase.objects.filter(pk=spare.pk).delete()


def _unowned(server: DatabaseServer, name: str, template_job: bool, *, is_invalid: bool) -> Finding | None:
    # No tenant's, and it accepts no connections.
    is_template = name.startswith(databases.template_prefix())

    def drop() -> None:
        # The mark may have changed while the operator was asked.
        if not is_invalid and not is_template and (reason := why_needed(server, name)):
            raise OrphanKept(reason)
        claimed = TenantDatabase.objects.filter(server=server, name=name).exclude(status=State.DELETED)
        if not claimed.exists() and not WarmDatabase.objects.filter(server=server, name=name).exists():
            with servers.maintenance(server) as raw:
                databases.drop(raw, name)

    if is_invalid:
        # Its data cannot be read by any means.
        return Finding(Kind.INVALID, server, name, "its DROP DATABASE was interrupted; the repair finishes it", drop)
    if is_template:
        version = name.removeprefix(databases.template_prefix())
        unfinished = version.endswith("_making") and not template_job
        if unfinished or is_older(version.removesuffix("_making")):
            return Finding(
                Kind.OLD_TEMPLATE, server, name, "no new tenant uses this template; the repair drops it", drop
            )
        return None
    message = "no tenant and no spare has this database"
    if reason := why_needed(server, name):
        by_hand = f'drop it by hand if you know that it is not needed: DROP DATABASE "{name}"'
        return Finding(Kind.ORPHAN, server, name, f"{message}; {reason}; --drop-orphans keeps it; {by_hand}")
    return Finding(Kind.ORPHAN, server, name, f"{message}; --drop-orphans drops it", drop, drops_data=True)
