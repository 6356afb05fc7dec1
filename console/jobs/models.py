"""Jobs that staff began in the console: what, who, how far, and how it ended."""

import uuid
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db import models
from django.utils.timezone import now

from userflow.accounts.models import AdminUser

WAITING, RUNNING, DONE, FAILED, INTERRUPTED = "waiting", "running", "done", "failed", "interrupted"
# A job says every few seconds that it lives; silent for this long, its process is gone.
SILENT_AFTER = timedelta(seconds=20)
# What was done stands in the audit trail as well, for longer.
KEPT = timedelta(days=90)


class Job(models.Model):
    """One piece of work. `params` is all that is needed to run it again; it holds no secret."""

    LIVING: ClassVar[tuple[str, ...]] = (WAITING, RUNNING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=32)
    # No relation: the job that deletes a tenant outlives it. Unknown until a new tenant has its row.
    tenant_id = models.UUIDField(null=True)
    params: "models.JSONField[dict[str, Any], dict[str, Any]]" = models.JSONField(default=dict)
    state = models.CharField(max_length=16, default=WAITING)
    # What has been done so far: [time, text] each.
    lines: "models.JSONField[list[list[str]], list[list[str]]]" = models.JSONField(default=list)
    # Why it failed; never data of people.
    reason = models.TextField(blank=True, default="")
    begun_by = models.ForeignKey(AdminUser, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    seen_at = models.DateTimeField(auto_now_add=True, help_text="When its process last said that it lives.")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "console_job"
        indexes = [
            models.Index(fields=["tenant_id", "-created_at"], name="console_job_of_tenant"),
            models.Index(fields=["-created_at"], name="console_job_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Begun long ago, and nobody works on it any more."""
        return models.Q(created_at__lt=moment - KEPT, seen_at__lt=moment - SILENT_AFTER)

    @property
    def status(self) -> str:
        """The state, or `interrupted` when the process that had it is gone."""
        if self.state in self.LIVING and self.seen_at < now() - SILENT_AFTER:
            return INTERRUPTED
        return self.state

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.status not in self.LIVING
