import uuid
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db import models
from django.db.models.functions import Cast, Concat

from identity_platform import task_queue
from userflow.accounts.models import AdminUser

WAITING, RUNNING, DONE, FAILED, INTERRUPTED = "waiting", "running", "done", "failed", "interrupted"
# The audit log keeps the changes themselves for longer.
KEPT = timedelta(days=90)
# Jobs that failed longer ago need no attention any more.
LATELY = timedelta(days=7)


class Job(models.Model):
    """One job. `params` is all that is needed to run it again; it holds no secret."""

    LIVING: ClassVar[tuple[str, ...]] = (WAITING, RUNNING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=32)
    # No foreign key: the job that deletes a tenant outlives it. Null until a new tenant has a row.
    tenant_id = models.UUIDField(null=True)
    params: "models.JSONField[dict[str, Any], dict[str, Any]]" = models.JSONField(default=dict)
    state = models.CharField(max_length=16, default=WAITING)
    # The progress so far, as [time, text] pairs.
    lines: "models.JSONField[list[list[str]], list[list[str]]]" = models.JSONField(default=list)
    # Why it failed; no personal data.
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
            models.Index(fields=["state", "ended_at"], name="console_job_state"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Without progress for long."""
        return models.Q(seen_at__lt=moment - KEPT)

    @classmethod
    def unsuccessful(cls, moment: datetime) -> models.Q:
        """Failed lately, or interrupted: its worker has ended and no other has taken it yet."""
        lock = Concat(models.Value("job-"), Cast(models.OuterRef("pk"), models.CharField()))
        queued = models.Exists(task_queue.queued().filter(lock=lock))
        failed = models.Q(state=FAILED, ended_at__gt=moment - LATELY)
        return failed | (models.Q(state__in=cls.LIVING) & ~models.Q(queued))

    @property
    def lock(self) -> str:
        return f"job-{self.pk}"

    def read_status(self) -> str:
        """Return the state, or `interrupted` if the worker of the job has ended and no other has taken it yet."""
        if self.state in self.LIVING and not task_queue.is_queued(self.lock):
            # It may have ended since its row was read: the row is written before the queue's entry.
            self.refresh_from_db(fields=["state", "lines", "reason", "tenant_id", "ended_at"])
            return INTERRUPTED if self.state in self.LIVING else self.state
        return self.state
