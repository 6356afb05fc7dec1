"""The kinds of jobs. Each calls the action of the command of the same name."""

import re
from pathlib import Path
from typing import Final

from django.conf import settings
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.jobs.actions import Report, kind_of_job
from console.jobs.models import Job
from identity_platform.audit.models import PlatformEvent
from identity_platform.audit.origin import current_origin
from identity_platform.folders import make_folder
from identity_platform.postgresql.row_errors import first_or
from tenants.addresses import former_slugs
from tenants.errors import SlugTaken, UnknownTenant, UpgradeFailed
from tenants.job_steps import observed_by
from tenants.jobs import fleet
from tenants.jobs.moves import Plan, move_tenant, plan_move
from tenants.jobs.relocation import back_up_tenant, clear_up, has_copy, restore_tenant, try_backup
from tenants.lifecycle import provisioning
from tenants.models import Tenant
from tenants.states import State
from userflow.passwords.actions import ask_for_admin_reset
from userflow.tenants.actions import generated_password, open_tenant, remove_tenant

PROVISION, FINISH, MIGRATE, BACK_UP, DELETE = "provision", "finish", "migrate", "back_up", "delete"
MOVE, RESTORE = "move", "restore"
# What a move or restore does, in the parameters of its job.
DRY_RUN, ONLINE, OFFLINE, FOR_REAL = "dry_run", "online", "offline", "for_real"
KIND_NAMES: Final = {
    PROVISION: gettext_lazy("Provision a tenant"),
    FINISH: gettext_lazy("Finish provisioning"),
    MIGRATE: gettext_lazy("Migrate"),
    BACK_UP: gettext_lazy("Back up"),
    DELETE: gettext_lazy("Delete a tenant"),
    MOVE: gettext_lazy("Move"),
    RESTORE: gettext_lazy("Restore"),
}
# What follows the slug in the name of a file that `back_up` writes.
_BACKUP: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z\.backup")
_STEPS: Final = {
    "mapped": gettext_lazy("The database's name is reserved."),
    "copied": gettext_lazy("The database is copied from the template."),
    "limited": gettext_lazy("Its time limits are set."),
    "verified": gettext_lazy("Its schema is verified."),
    "activated": gettext_lazy("The tenant is active."),
    "migrating": gettext_lazy("Writes are blocked; the migrations run in one transaction."),
    "migrated": gettext_lazy("The migrations are complete."),
    "backed up": gettext_lazy("The final backup is written."),
    "deleting": gettext_lazy("The tenant is closed to requests."),
    "dropped": gettext_lazy("The database is dropped."),
    "moving": gettext_lazy("Writes are blocked."),
    "written out": gettext_lazy("The database is written to a file."),
    "reserved": gettext_lazy("The name of the copy is reserved."),
    "created": gettext_lazy("The copy is created."),
    "read in": gettext_lazy("The copy is filled."),
    "switched": gettext_lazy("The tenant uses the copy from now on."),
}


def _step(report: Report, step: str) -> None:
    report(str(_STEPS.get(step, step)))


@kind_of_job(PROVISION)
def provision(job: Job, report: Report) -> None:
    """Create a tenant with its database, client and first admin, who is mailed a link to set a password."""
    params = job.params
    # This password is never disclosed: the admin sets another one with the link.
    admin = {"username": params["username"], "email": params["email"], "password": generated_password()}
    report(_("Creating the tenant %(slug)s.") % params)
    with observed_by(lambda step: _step(report, step)):
        try:
            tenant = open_tenant(
                name=params["name"], slug=params["slug"], server=params["server"] or None, admin=admin
            ).tenant
        except SlugTaken:
            # If the job was killed after its last step, the tenant with the slug is its own.
            made = Tenant.objects.filter(slug=params["slug"], name=params["name"], created_at__gte=job.created_at)
            provisioned_tenant = made.filter(
                database__status=State.ACTIVE, admin_users__username=params["username"]
            ).first()
            if provisioned_tenant is None:
                raise
            tenant = provisioned_tenant
    Job.objects.filter(pk=job.pk).update(tenant_id=tenant.pk)
    report(_("The tenant is active."))
    ask_for_admin_reset(email=params["email"])
    report(_("A link to set a password is mailed to %(username)s at %(email)s.") % params)


@kind_of_job(FINISH)
def finish(job: Job, report: Report) -> None:
    """Continue an interrupted provisioning."""
    with observed_by(lambda step: _step(report, step)):
        provisioning.finish_provisioning(tenant_id=_tenant_of(job).pk)


@kind_of_job(MIGRATE)
def migrate(job: Job, report: Report) -> None:
    """Migrate one tenant's database to the schema of this release."""
    tenant = _tenant_of(job)
    with observed_by(lambda step: _step(report, step)):
        result = fleet.migrate_tenants(only=[tenant.slug])
    for failure in result.failed:
        raise UpgradeFailed(failure.reason)
    if not result.outcomes:
        report(_("Its schema is up to date."))
    for outcome in result.outcomes:
        report(_("Done in %(seconds).1f s.") % {"seconds": outcome.seconds} if not outcome.reason else outcome.reason)


@kind_of_job(BACK_UP)
def back_up(job: Job, report: Report) -> None:
    """Write a tenant's database to a file in the backup folder."""
    tenant = _tenant_of(job)
    make_folder(settings.BACKUP_FOLDER)
    # By the id, which a new slug does not change.
    file = settings.BACKUP_FOLDER / f"{tenant.pk}-{now():%Y%m%dT%H%M%SZ}.backup"
    report(_("Writing %(file)s.") % {"file": file})
    back_up_tenant(tenant_id=tenant.pk, file=file)
    size = file.stat().st_size
    report(_("Written: %(size)s bytes. Use restore_tenant to restore it.") % {"size": f"{size:,}"})


@kind_of_job(DELETE)
def delete(job: Job, report: Report) -> None:
    """Delete a tenant with its database, and the tenant's data in its jobs."""
    try:
        tenant = _tenant_of(job)
    except UnknownTenant:
        # Killed after the last step.
        report(_("The tenant is deleted."))
        return
    with observed_by(lambda step: _step(report, step)):
        final_backup = remove_tenant(
            tenant_id=tenant.pk, confirm=tenant.slug, final_backup=not job.params.get("without_backup", False)
        )
    Job.objects.filter(tenant_id=tenant.pk).exclude(pk=job.pk).update(params={}, lines=[], reason="")
    Job.objects.filter(pk=job.pk).update(params={})
    report(_("The tenant is deleted."))
    if final_backup.until:
        until = {"until": f"{final_backup.until:%Y-%m-%d %H:%M} UTC", "file": final_backup.file}
        report(_("Until %(until)s it can be restored: restore_deleted_tenant %(file)s") % until)
    else:
        report(_("There is no final backup of it."))


@kind_of_job(MOVE)
def move(job: Job, report: Report) -> None:
    """Move a tenant to another database server, or only say how it would be moved."""
    tenant, server, mode = _tenant_of(job), job.params["server"], job.params["mode"]
    if mode == DRY_RUN:
        _report_plan(plan_move(tenant_id=tenant.pk, server=server), report)
        return
    if tenant.database.server.name == server and not has_copy(tenant.pk):
        # Killed after the last step.
        report(_("The tenant is on %(server)s.") % {"server": server})
        return
    with observed_by(lambda step: _step(report, step)):
        mapping = move_tenant(tenant_id=tenant.pk, server=server, offline=mode == OFFLINE, progress=report)
    report(_("The tenant is on %(server)s.") % {"server": mapping.server.name})


def _report_plan(plan: Plan, report: Report) -> None:
    servers = {"source": plan.source, "target": plan.target}
    if not plan.obstacles:
        report(_("It would be moved from %(source)s to %(target)s online.") % servers)
    else:
        report(_("It would be moved from %(source)s to %(target)s by dump and restore, read-only meanwhile.") % servers)
    for obstacle in plan.obstacles:
        report(obstacle)
    report(_("Nothing was changed."))


def backups_of(tenant: Tenant) -> list[str]:
    """Return the names of the tenant's files in the backup folder, newest first."""
    moments_by_name: dict[str, str] = {}
    # Earlier releases named them by the slug.
    for owner in (str(tenant.pk), tenant.slug, *former_slugs.slugs_of(tenant.pk)):
        for file in settings.BACKUP_FOLDER.glob(f"{owner}-*.backup"):
            moment = file.name.removeprefix(f"{owner}-")
            if _BACKUP.fullmatch(moment):
                moments_by_name[file.name] = moment
    return sorted(moments_by_name, key=lambda name: (moments_by_name[name], name), reverse=True)


@kind_of_job(RESTORE)
def restore(job: Job, report: Report) -> None:
    """Restore a tenant from a file of the backup folder, or only into a copy that is compared and dropped."""
    tenant, file = _tenant_of(job), settings.BACKUP_FOLDER / Path(job.params["file"]).name
    if job.params["mode"] == DRY_RUN:
        with observed_by(lambda step: _step(report, step)):
            try_backup(tenant_id=tenant.pk, file=file)
        report(_("The backup can be restored: its copy had all rows. Nothing was changed."))
        return
    if _is_restored(job):
        # Killed after the switch. Another restore would lose the changes since.
        clear_up(tenant.pk)
    else:
        with observed_by(lambda step: _step(report, step)):
            restore_tenant(tenant_id=tenant.pk, file=file)
    report(_("The tenant is restored."))


def _is_restored(job: Job) -> bool:
    """Return whether an earlier run of the job has restored the tenant: its audit event names the request of that run."""
    requests = [*job.params.get("requests", ()), current_origin().request_id]
    job.params["requests"] = sorted(set(requests))
    job.save(update_fields=["params"])
    restored = PlatformEvent.objects.filter(tenant_id=job.tenant_id, action="tenant.restored")
    return restored.filter(request_id__in=job.params["requests"]).exists()


def _tenant_of(job: Job) -> Tenant:
    tenants = Tenant.objects.select_related("database__server").exclude(database__status=State.DELETED)
    return first_or(tenants.filter(database__pk=job.tenant_id), UnknownTenant)
