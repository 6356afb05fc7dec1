"""Create, suspend, resume and delete tenants. Every job can be killed at any point and run again.

The mapping row comes first: it reserves the database's name for the tenant. The database is taken from the warm pool or
copied from a migrated template (STRATEGY wal_log), and is used only once the mapping says `active`. A job holds the tenant's
lock while it works on its database (`databases.job_lock`).
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from identity_platform.api.errors import ApiError
from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql.row_errors import first_or
from identity_platform.postgresql.statement_timeout import no_timeout
from identity_platform.task_queue import run_soon
from tenants import job_steps, keys, operating_modes
from tenants.addresses import former_slugs
from tenants.addresses.webauthn_claims import claim
from tenants.copies import databases
from tenants.database_servers import fence_counters, marks
from tenants.entering import lookup
from tenants.entering.schema import is_current, schema_version, upgrade
from tenants.entering.target import DatabaseTarget
from tenants.errors import CopyFailed, JobRunning, SlugTaken, UnknownTenant, WrongState
from tenants.journals import revocations
from tenants.lifecycle import final_backups, warm_pool
from tenants.lifecycle.capacity import check_region, region_of, server_with_room
from tenants.lifecycle.final_backups import Deletion
from tenants.lifecycle.queries import reserve_tenant
from tenants.lifecycle.slugs import slugs_for
from tenants.lifecycle.transitions import change_state, forget_in_global_database, mapping_of, reload_mapping
from tenants.models import DatabaseServer, DataKey, Tenant, TenantDatabase
from tenants.records import reconciling
from tenants.signals import tenant_created, tenant_resuming
from tenants.states import FOLLOWS, Purpose, State

log = structlog.get_logger("identity.tenants")

# Creates what the caller wants to exist with the tenant, in the transaction that activates it.
Initialize = Callable[[Tenant], None]


# --- creating --------------------------------------------------------------------------------------------------------


def create_tenant(
    *,
    name: str,
    slug: str | None = None,
    tenant_settings: dict[str, object] | None = None,
    server: str | None = None,
    server_labels: Sequence[str] = (),
    initialize: Initialize | None = None,
) -> Tenant:
    """Create a tenant with a database of its own, ready when this returns.

    Without `slug` one is generated from the name. If the provisioning of a tenant with this slug was interrupted, it is
    finished, with the name and settings given now. A new one is on a server with all `server_labels`. Raises SlugTaken,
    NoRoom, WrongRegion, RelyingPartyTaken, ReadOnlyMode and what `initialize` raises; errors of the database server are not
    translated.
    """
    tenant_settings = tenant_settings or {}
    if slug is not None and (interrupted := _interrupted(slug)) is not None:
        return _finish_interrupted(interrupted, name, tenant_settings, initialize)
    chosen = server_with_room(server, region_of(tenant_settings), server_labels)
    operating_modes.check(Purpose.WRITE, chosen.pk)
    fence_counters.advance(chosen)
    while True:
        try:
            return _create(chosen, name, slug, tenant_settings, initialize)
        except _SpareRejected as rejected:
            warm_pool.set_aside(rejected.database)
            log.error(
                "spare_database_rejected",
                server=chosen.name,
                database=rejected.database,
                reason=str(rejected.__cause__),
            )


class _SpareRejected(Exception):
    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.database = database


def _create(
    chosen: DatabaseServer,
    name: str,
    slug: str | None,
    tenant_settings: dict[str, object],
    initialize: Initialize | None,
) -> Tenant:
    with ExitStack() as job:
        with transaction.atomic():
            _lock_region(chosen, region_of(tenant_settings))
            tenant = _reserve(chosen, name, slug, tenant_settings)
            claim(tenant.pk, before={}, after=tenant_settings)
            mapping = tenant.database
            if mapping.status == State.ACTIVE:
                _initialize(tenant, initialize)
                # Last: what is rolled back for another reason leaves no mark.
                _take(mapping)
                reconciling.apply_all(tenant.pk, direct=True)
                # A spare became its database.
                transaction.on_commit(lambda: run_soon(warm_pool.REFILL), robust=True)
                return tenant
            # Locked before the row is visible: an unlocked one counts as interrupted.
            raw = job.enter_context(databases.job_lock(chosen, tenant.pk))
        job_steps.completed("mapped")
        try:
            _finish(raw, mapping, initialize)
        except ApiError:
            # Rejected (the admin's name is taken), not interrupted: nothing is kept.
            _undo(raw, mapping)
            raise
    return tenant


def _take(mapping: TenantDatabase) -> None:
    try:
        marks.take(mapping.server, mapping.name, mapping.pk)
    except marks.SpareUnfit as unfit:
        raise _SpareRejected(mapping.name) from unfit


def _reserve(server: DatabaseServer, name: str, slug: str | None, tenant_settings: dict[str, object]) -> Tenant:
    """Write the tenant's rows, in the caller's transaction. Raises SlugTaken."""
    # A stated slug is taken as it is.
    for candidate in [slug] if slug else slugs_for(name):
        tenant = reserve_tenant(server, name=name, slug=candidate, tenant_settings=tenant_settings)
        if tenant is not None:
            former_slugs.reject_reserved(candidate, tenant.pk)
            return tenant
    raise SlugTaken


def _lock_region(server: DatabaseServer, region: str | None) -> None:
    """Keep the server's region until the transaction ends, for a tenant that is bound to it. Raises WrongRegion."""
    if region is not None:
        # Its region can have changed since it was chosen: that locks the row, and rejects where it finds a bound tenant.
        check_region(DatabaseServer.objects.select_for_update(no_key=True).get(pk=server.pk), region)


def _interrupted(slug: str) -> TenantDatabase | None:
    mappings = TenantDatabase.objects.select_related("tenant", "server").filter(tenant__slug__iexact=slug)
    return mappings.filter(status=State.PROVISIONING).first()


def _finish_interrupted(
    mapping: TenantDatabase, name: str, tenant_settings: dict[str, object], initialize: Initialize | None
) -> Tenant:
    tenant = mapping.tenant
    try:
        with databases.job_lock(mapping.server, mapping.pk) as raw:
            mapping.refresh_from_db(fields=["status"])
            # Finished by another process in the meantime.
            if mapping.status != State.PROVISIONING:
                raise SlugTaken
            with transaction.atomic():
                _lock_region(mapping.server, region_of(tenant_settings))
                claim(mapping.pk, before=tenant.settings, after=tenant_settings)
                tenant.name, tenant.settings = name, tenant_settings
                tenant.save(update_fields=["name", "settings", "updated_at"])
            _finish(raw, mapping, initialize)
    except JobRunning as running:
        raise SlugTaken from running
    return tenant


def finish_provisioning(*, tenant_id: UUID) -> Tenant:
    """Finish an interrupted provisioning, from the step it reached. Does nothing if the tenant is ready.

    Raises UnknownTenant, JobRunning; errors of the database server are not translated.
    """
    mapping = first_or(TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id), UnknownTenant)
    with databases.job_lock(mapping.server, tenant_id) as raw:
        mapping.refresh_from_db(fields=["status"])
        if mapping.status == State.PROVISIONING:
            _finish(raw, mapping, None)
    return mapping.tenant


def _finish(raw: databases.Raw, mapping: TenantDatabase, initialize: Initialize | None) -> None:
    warm_pool.copy(raw, mapping.server, mapping.name)
    target = DatabaseTarget.for_maintenance(mapping.server, mapping.name)
    if not is_current(target):
        # Copied before a crash, finished by newer code.
        upgrade(target)
    try:
        marks.take(mapping.server, mapping.name, mapping.pk)
    except marks.SpareUnfit as unfit:
        raise CopyFailed(f"The new database {mapping.name} is not used: {unfit}.") from unfit
    job_steps.completed("verified")
    with transaction.atomic():
        mapping.status, mapping.schema_version, mapping.reason = State.ACTIVE, schema_version(), ""
        mapping.save(update_fields=["status", "schema_version", "reason", "updated_at"])
        _initialize(mapping.tenant, initialize)
        reconciling.apply_all(mapping.pk, direct=True)
    job_steps.completed("activated")
    lookup.forget()


def _initialize(tenant: Tenant, initialize: Initialize | None) -> None:
    tenant_created.send(sender=Tenant, tenant=tenant)
    if initialize is not None:
        initialize(tenant)
    record_for_platform("tenant.created", tenant_id=tenant.pk, target=("tenant", tenant.pk))


# --- from state to state ---------------------------------------------------------------------------------------------


def suspend_tenant(*, tenant_id: UUID, reason: str = "") -> TenantDatabase:
    """Suspend a tenant from the next request on; its data is kept. Raises UnknownTenant, WrongState.

    `reason` is in the audit event. It must hold no personal data.
    """
    mapping = change_state(tenant_id, State.SUSPENDED, may_lag=True)
    details = {"reason": reason} if reason else {}
    record_for_platform("tenant.suspended", tenant_id=tenant_id, target=("tenant", tenant_id), details=details)
    return mapping


def resume_tenant(*, tenant_id: UUID) -> TenantDatabase:
    """Resume a suspended tenant. Raises UnknownTenant, WrongState, JobRunning.

    Rejected during a move or restore, as later writes would be missing in the copy.
    """
    mapping = mapping_of(tenant_id)
    with databases.job_lock(mapping.server, tenant_id) as raw:
        reload_mapping(mapping)
        if mapping.name in databases.read_only_names(raw):
            # An interrupted move left it read-only.
            databases.make_writable(raw, mapping.name)
        if mapping.status == State.SUSPENDED:
            tenant_resuming.send(sender=resume_tenant, tenant_id=tenant_id)
        mapping = change_state(tenant_id, State.ACTIVE, only_from=State.SUSPENDED)
    record_for_platform("tenant.resumed", tenant_id=tenant_id, target=("tenant", tenant_id))
    return mapping


def delete_tenant(*, tenant_id: UUID, final_backup: bool = True) -> Deletion:
    """Drop a tenant's database and its rows in the global database, except for an anonymous tombstone.

    With `final_backup` an encrypted backup is written first and kept for DELETED_TENANT_BACKUP_DAYS, with the data key that
    decrypts it. A tenant without a readable database, or that was never active, is deleted without one. Can be run again
    after a crash at any step. Raises UnknownTenant, WrongState, JobRunning; CopyFailed or ProgramMissing if the backup
    cannot be written, and then nothing was changed.
    """
    mapping = mapping_of(tenant_id)
    # Deleting many rows can take longer than a request's statement timeout.
    with no_timeout(), databases.job_lock(mapping.server, tenant_id) as raw:
        reload_mapping(mapping)
        if mapping.status != State.DELETING:
            _begin_deletion(raw, mapping, final_backup=final_backup)
        job_steps.completed("deleting")
        fence_counters.advance(mapping.server)
        databases.drop(raw, mapping.name)
        job_steps.completed("dropped")
        deletion = final_backups.deletion_of(tenant_id)
        with transaction.atomic():
            forget_in_global_database(tenant_id, keep_key=deletion.until is not None)
            record_for_platform(
                "tenant.deleted",
                tenant_id=tenant_id,
                target=("tenant", tenant_id),
                details={"final_backup_until": deletion.until.isoformat() if deletion.until else None},
            )
    keys.forget(str(tenant_id))
    lookup.forget()
    return deletion


def _begin_deletion(raw: databases.Raw, mapping: TenantDatabase, *, final_backup: bool) -> None:
    """Suspend the tenant, write its final backup, and only then mark it as deleting."""
    was_active = mapping.status == State.ACTIVE
    if was_active:
        change_state(mapping.pk, State.SUSPENDED, by_job=True)
    elif State.DELETING not in FOLLOWS[State(mapping.status)]:
        raise WrongState(f"The tenant is {mapping.status}: it cannot become {State.DELETING}.")
    needs_final_backup = final_backup and settings.DELETED_TENANT_BACKUP_DAYS and mapping.status != State.PROVISIONING
    if not needs_final_backup or not databases.exists(raw, mapping.name):
        change_state(mapping.pk, State.DELETING)
        return
    try:
        # Running requests could still write data that the backup would miss.
        databases.make_read_only(raw, mapping.name)
        # If it is restored later, older backups of it can be restored again.
        revocations.deliver_read_only(mapping.pk, DatabaseTarget.for_maintenance(mapping.server, mapping.name))
        file, begun_at = final_backups.write(mapping)
        with transaction.atomic():
            final_backups.keep(mapping.pk, file, begun_at)
            change_state(mapping.pk, State.DELETING)
    except BaseException:
        # Also after Ctrl-C.
        databases.make_writable(raw, mapping.name)
        if was_active:
            change_state(mapping.pk, State.ACTIVE, only_from=State.SUSPENDED, by_job=True)
        raise
    job_steps.completed("backed up")


def _undo(raw: databases.Raw, mapping: TenantDatabase) -> None:
    """Remove a tenant that has never been active."""
    databases.drop(raw, mapping.name)
    with transaction.atomic():
        DataKey.objects.filter(owner=str(mapping.pk)).delete()
        Tenant.objects.filter(pk=mapping.pk).delete()
