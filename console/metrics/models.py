"""Metrics of tenants as of the last collection. They are derived and can be collected again at any time."""

from django.db import models

from tenants.models import Tenant


class TenantFigures(models.Model):
    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="figures")
    users = models.BigIntegerField(default=0)
    active_users = models.BigIntegerField(default=0)
    protected_users = models.BigIntegerField(default=0, help_text="Active users with at least one factor.")
    # Active users by method, named as in `mfa_methods`.
    factors: "models.JSONField[dict[str, int], dict[str, int]]" = models.JSONField(default=dict)
    database_bytes = models.BigIntegerField(default=0)
    pending_messages = models.BigIntegerField(default=0, db_default=0, help_text="Webhook messages still to be sent.")
    overdue_endpoints = models.BigIntegerField(default=0, db_default=0, help_text="Whose next message is overdue.")
    unsealed_events = models.BigIntegerField(default=0, db_default=0, help_text="Audit events without a seal.")
    pending_mails = models.BigIntegerField(default=0, db_default=0, help_text="Mails still to be sent.")
    overdue_mails = models.BigIntegerField(default=0, db_default=0, help_text="Those of them that wait for 15 minutes.")
    dead_mails = models.BigIntegerField(default=0, db_default=0, help_text="Mails that were given up within a day.")
    failing_endpoints = models.BigIntegerField(
        default=0, db_default=0, help_text="Webhook endpoints that fail, or were disabled because they failed."
    )
    rejected_sign_ins = models.BigIntegerField(
        default=0, db_default=0, help_text="On the worse of the last two days, if there were unusually many; else 0."
    )
    # Whether one of the checks of these metrics finds something: its index holds no other tenant.
    needs_attention = models.BooleanField(default=False, db_default=False)
    check_ms = models.FloatField(default=0, help_text="Until its database had answered the first statement.")
    # Why the last collection failed; no personal data.
    failure = models.TextField(blank=True, default="")
    checked_at = models.DateTimeField(null=True, help_text="The last try.")
    collected_at = models.DateTimeField(null=True, help_text="The last one that succeeded: the age of the figures.")
    # The position up to which the audit log is counted.
    last_event_id = models.BigIntegerField(default=0)

    class Meta:
        indexes = [
            models.Index(fields=["-check_ms"], name="console_slowest"),
            models.Index(fields=["-users"], name="console_most_users"),
            models.Index(fields=["-database_bytes"], name="console_largest"),
            models.Index(fields=["tenant"], condition=~models.Q(failure=""), name="console_failing"),
            models.Index(fields=["tenant"], condition=models.Q(needs_attention=True), name="console_attention"),
        ]


class DayCounts(models.Model):
    """The counts of a day (UTC)."""

    day = models.DateField()
    sign_ins = models.BigIntegerField(default=0)
    failures = models.BigIntegerField(default=0, help_text="Refused passwords and factors.")
    new_users = models.BigIntegerField(default=0)
    registry_calls = models.BigIntegerField(default=0)
    registry_refused = models.BigIntegerField(default=0, help_text="Answers 429.")

    class Meta:
        abstract = True


class TenantDay(DayCounts):
    # The unique constraint's index begins with the tenant.
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="days", db_index=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "day"], name="console_tenant_day")]
        indexes = [models.Index(fields=["day"], name="console_day")]


class PlatformDay(DayCounts):
    """A day of all tenants together, and of the operators' own calls."""

    day = models.DateField(primary_key=True)
    operator_calls = models.BigIntegerField(default=0)
    operator_refused = models.BigIntegerField(default=0)
