"""Runs in the global database: one at a time per directory, taken over when its process is gone."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Coalesce
from django.utils.timezone import now

from identity_platform.audit.writer import record_for_platform
from userflow.directory.models import INTERRUPTED, RUNNING, SUCCEEDED, DirectoryConfig, DirectoryRun
from userflow.errors import DirectoryBusy

# Longer than a live run can be silent: the slowest page after the longest throttling.
STALE_AFTER: Final = timedelta(minutes=5)
MOST_LISTED: Final = 100
COUNTS: Final = ("found", "created", "updated", "activated", "deactivated", "skipped")


class RunLost(Exception):
    """Another process took this directory over, because this one had no heartbeat for too long."""


@dataclass(slots=True)
class Tally:
    """The counts of a run so far. `errors` and `preview` are bounded lists."""

    found: int = 0
    created: int = 0
    updated: int = 0
    activated: int = 0
    deactivated: int = 0
    skipped: int = 0
    errors: list[dict[str, str]] = field(default_factory=list)
    preview: list[dict[str, str]] = field(default_factory=list)

    def reject(self, external_id: str, code: str, message: str) -> None:
        """Add an error about one object."""
        if len(self.errors) < MOST_LISTED:
            self.errors.append({"external_id": external_id, "code": code, "message": message})

    def show(self, external_id: str, action: str, *, email: str, name: str) -> None:
        """Add one object to the preview."""
        if len(self.preview) < MOST_LISTED:
            self.preview.append({"external_id": external_id, "action": action, "email": email, "name": name})

    def figures(self) -> dict[str, int]:
        """Return the counts as the response fields `users_…`."""
        return {f"users_{name}": getattr(self, name) for name in COUNTS}


def claim(config: DirectoryConfig, *, trigger: str, dry_run: bool) -> DirectoryRun:
    """Start a run and mark the run of a dead process as interrupted. Raises DirectoryBusy while another run is alive."""
    run = DirectoryRun(config=config, tenant_id=config.tenant_id, trigger=trigger, dry_run=dry_run)
    free = Q(running=None) | Q(alive_at__lt=now() - STALE_AFTER)
    with transaction.atomic():
        if not DirectoryConfig.objects.filter(free, pk=config.pk).update(running=run.pk, alive_at=now()):
            raise DirectoryBusy
        DirectoryRun.objects.filter(config=config, state=RUNNING).update(
            state=INTERRUPTED, finished_at=now(), reason="The process ended; the next run took over."
        )
        run.save(force_insert=True)
    return run


def beat(run: DirectoryRun) -> None:
    """Write the heartbeat. Raises RunLost if another run holds the directory."""
    if not DirectoryConfig.objects.filter(pk=run.config_id, running=run.pk).update(alive_at=now()):
        raise RunLost


def finish(
    run: DirectoryRun, tally: Tally, *, state: str, reason: str = "", cursor: str | None = None, full: bool = True
) -> DirectoryRun:
    """End a run and store its counts. `cursor` is the start of the next read; None keeps the present one.

    Names and addresses of users stay in the tenant's database: the row keeps ids of directory objects only.
    """
    run.state, run.reason, run.full, run.finished_at = state, reason[:500], full, now()
    for member, figure in tally.figures().items():
        setattr(run, member, figure)
    run.errors = tally.errors
    run.preview_users = [{"external_id": shown["external_id"], "action": shown["action"]} for shown in tally.preview]
    config = run.config
    changes: dict[str, object] = {"running": None}
    if not run.dry_run:
        every = config.sync_every_minutes
        failing_since = None if state == SUCCEEDED else Coalesce("failing_since", run.finished_at)
        changes["failing_since"] = failing_since
        changes["next_run_at"] = None if every is None else run.finished_at + timedelta(minutes=every)
        if cursor is not None:
            changes["cursor"] = cursor
            if full:
                changes["read_in_full_at"] = run.finished_at
    with transaction.atomic():
        # If another process has marked the run as interrupted, that stays.
        if DirectoryConfig.objects.filter(pk=config.pk, running=run.pk).update(**changes):
            run.save()
            record_for_platform(
                "directory.synchronised",
                tenant_id=run.tenant_id,
                target=("directory", config.pk),
                outcome="success" if state == SUCCEEDED else "failed",
                details={"run_id": str(run.pk), "state": state, "dry_run": run.dry_run, **tally.figures()},
            )
    return run


def is_running(config_id: UUID) -> bool:
    """Return whether a live run holds the directory."""
    alive = DirectoryConfig.objects.filter(pk=config_id, alive_at__gte=now() - STALE_AFTER)
    return alive.exclude(running=None).exists()
