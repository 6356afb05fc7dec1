"""The rows of the audit trail. Ids and facts, never personal data, never secrets (security.md section 5)."""

from typing import Any, ClassVar

from django.db import models
from django.db.models.functions import Now


class AuditEvent(models.Model):
    """Who did what on what, from where, and how it ended."""

    at = models.DateTimeField(db_default=Now())
    action = models.CharField(max_length=64, help_text="noun.verb, as `end_user.registered`")
    outcome = models.CharField(max_length=16, default="success", help_text="success, refused or failed")
    actor_kind = models.CharField(max_length=16, help_text="operator, admin, end_user, client, system or anonymous")
    actor_id = models.CharField(max_length=64, blank=True, default="")
    target_kind = models.CharField(max_length=32, blank=True, default="")
    target_id = models.CharField(max_length=64, blank=True, default="")
    address = models.CharField(max_length=45, blank=True, default="")
    request_id = models.CharField(max_length=128, blank=True, default="")
    details: "models.JSONField[dict[str, Any], dict[str, Any]]" = models.JSONField(default=dict)

    class Meta:
        abstract = True
        ordering = ["-id"]


class TenantEvent(AuditEvent):
    """An event of one tenant, in that tenant's database."""

    lives_in_tenant: ClassVar[bool] = True

    class Meta(AuditEvent.Meta):
        db_table = "audit_tenantevent"
        indexes = [
            models.Index(fields=["action", "-id"], name="tenant_event_action"),
            models.Index(fields=["actor_id", "-id"], name="tenant_event_actor"),
            models.Index(fields=["target_id", "-id"], name="tenant_event_target"),
        ]

    def __str__(self) -> str:
        return self.action


class PlatformEvent(AuditEvent):
    """An event of the platform: operators, admin users, tenants, registry, keys. `tenant_id` says whom it concerns."""

    tenant_id = models.UUIDField(null=True)

    class Meta(AuditEvent.Meta):
        db_table = "audit_platformevent"
        indexes = [
            models.Index(fields=["tenant_id", "-id"], name="platform_event_tenant"),
            models.Index(fields=["action", "-id"], name="platform_event_action"),
            models.Index(fields=["actor_id", "-id"], name="platform_event_actor"),
            models.Index(fields=["target_id", "-id"], name="platform_event_target"),
        ]

    def __str__(self) -> str:
        return self.action
