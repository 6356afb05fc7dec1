"""Directory configurations, their runs, and the links between users and directory objects.

Configurations and runs live in the global database, so that the scheduler and operators need not visit every tenant's
database. Runs therefore hold ids and counts only; names and addresses of users stay in the tenant's database.
"""

import uuid
from datetime import datetime, timedelta
from typing import ClassVar, TypedDict

from django.db import models
from django.db.models.functions import Lower

from identity_platform.restoring import AfterRestore, NoAuthority
from tenants.models import Tenant, TenantModel
from userflow.accounts.models import EndUser
from userflow.directory.objects import AttributeMapping

ACTIVE_DIRECTORY, ENTRA_ID = "active_directory", "entra_id"
KINDS = (ACTIVE_DIRECTORY, ENTRA_ID)
RUNNING, SUCCEEDED, FAILED = "running", "succeeded", "failed"
# Too many users would be deactivated; the time was up; the process ended.
REFUSED, INCOMPLETE, INTERRUPTED = "refused", "incomplete", "interrupted"
STATES = (RUNNING, SUCCEEDED, FAILED, REFUSED, INCOMPLETE, INTERRUPTED)
BY_REQUEST, BY_COMMAND, BY_SCHEDULE = "request", "command", "schedule"
TRIGGERS = (BY_REQUEST, BY_COMMAND, BY_SCHEDULE)
RUNS_KEPT = timedelta(days=90)


class Target(TypedDict, total=False):
    """The fields that name the server: those of one kind (`actions.TARGET`)."""

    server: str
    port: int
    tls: str
    ca_certificate: str
    base_dn: str
    bind_dn: str
    directory_tenant_id: str
    application_id: str
    cloud: str


class DirectoryConfig(models.Model):
    """A directory of a tenant: where it is, how to read it and how its objects become users."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # The unique constraint's index begins with the tenant.
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="directories", db_index=False)
    kind = models.CharField(max_length=20, choices=[(k, k) for k in KINDS])
    name = models.CharField(max_length=255)
    enabled = models.BooleanField(default=True)
    # Server, port, TLS and names. The secret is sealed for exactly this target (`directory.configs`).
    target: "models.JSONField[Target, Target]" = models.JSONField(default=dict)
    secret = models.BinaryField(editable=False)
    secret_set_at = models.DateTimeField()
    user_filter = models.CharField(max_length=1000, blank=True, default="")
    mapping: "models.JSONField[AttributeMapping, AttributeMapping]" = models.JSONField(default=dict)
    # Maps directory groups (DN or object id) to names of tenant groups.
    groups: "models.JSONField[dict[str, str], dict[str, str]]" = models.JSONField(default=dict)
    client_id = models.UUIDField(null=True)
    max_deactivation_percent = models.PositiveSmallIntegerField(default=20)
    sync_every_minutes = models.PositiveIntegerField(null=True, default=60)
    next_run_at = models.DateTimeField(null=True)
    # The delta link for the next read of changes, and the time of the last full read.
    cursor = models.TextField(blank=True, default="", editable=False)
    read_in_full_at = models.DateTimeField(null=True, editable=False)
    # Since when no run that changes users has succeeded.
    failing_since = models.DateTimeField(null=True, editable=False)
    # The run that holds the directory, and its last heartbeat: one run at a time (`directory.runs`).
    running = models.UUIDField(null=True, editable=False)
    alive_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint("tenant", Lower("name"), name="directory_config_name_unique")]
        indexes = [
            models.Index(fields=["tenant", "-created_at", "-id"], name="directory_config_newest_first"),
            models.Index(fields=["next_run_at"], condition=models.Q(enabled=True), name="directory_config_due"),
            models.Index(
                fields=["tenant"], condition=models.Q(failing_since__isnull=False), name="directory_config_failing"
            ),
        ]


class DirectoryRun(models.Model):
    """One synchronisation: its trigger, counts and outcome. Holds ids of directory objects, never names."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    config = models.ForeignKey(DirectoryConfig, on_delete=models.CASCADE, related_name="runs", db_index=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="directory_runs")
    trigger = models.CharField(max_length=16, choices=[(t, t) for t in TRIGGERS])
    dry_run = models.BooleanField(default=False)
    # False if only changes since the previous run were read.
    full = models.BooleanField(default=True)
    state = models.CharField(max_length=16, choices=[(s, s) for s in STATES], default=RUNNING)
    started_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    users_found = models.PositiveIntegerField(default=0)
    users_created = models.PositiveIntegerField(default=0)
    users_updated = models.PositiveIntegerField(default=0)
    users_activated = models.PositiveIntegerField(default=0)
    users_deactivated = models.PositiveIntegerField(default=0)
    users_skipped = models.PositiveIntegerField(default=0)
    # Bounded: [{"external_id", "code", "message"}] and [{"external_id", "action"}].
    errors: "models.JSONField[list[dict[str, str]], list[dict[str, str]]]" = models.JSONField(default=list)
    preview_users: "models.JSONField[list[dict[str, str]], list[dict[str, str]]]" = models.JSONField(default=list)
    reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        indexes = [
            models.Index(fields=["config", "-started_at", "-id"], name="directory_run_newest_first"),
            models.Index(fields=["started_at"], name="directory_run_started"),
        ]

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Return the condition for runs past their retention."""
        return models.Q(started_at__lt=moment - RUNS_KEPT)


class DirectoryLink(TenantModel):
    """Links an end user to a directory object by the object's own id, never by its address or name."""

    config_id = models.UUIDField()
    # objectGUID as hex, or the object id of Entra ID.
    external_id = models.CharField(max_length=64)
    user = models.OneToOneField(EndUser, on_delete=models.CASCADE, related_name="directory_link")
    # A run deactivated the user and may activate it again. Users whom an admin deactivates stay inactive.
    switched_off = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    after_restore: ClassVar[AfterRestore] = NoAuthority(
        "They count only with their directory, which is in the global database."
    )

    class Meta:
        verbose_name_plural = "directory links"
        constraints = [models.UniqueConstraint(fields=["external_id", "config_id"], name="directory_link_unique")]
        indexes = [models.Index(fields=["config_id", "id"], name="directory_link_config")]
