"""Metrics for Prometheus from the last collection: sums over all tenants, and the largest tenants by name.

Eight statements a scrape. Prometheus keeps a series for each label for months, so no metric has one for every tenant.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from django.db.models import Count, Max, Min, Q, Sum
from django.utils.timezone import now
from prometheus_client.metrics_core import Metric

from console.jobs.models import Job
from console.metrics.models import TenantDay, TenantFigures
from identity_platform.api.metrics import gauge
from userflow.mail.models import PlatformMail

LARGEST: Final = 20


def collect() -> Iterator[Metric]:
    """Yield them. Queries the global database only."""
    yield from _sums()
    for name, text, field in (
        ("identity_tenant_users", "End users of the largest tenants.", "users"),
        ("identity_tenant_database_bytes", "Size of the largest tenant databases.", "database_bytes"),
        ("identity_tenant_check_milliseconds", "First response of the slowest tenant databases.", "check_ms"),
        (
            "identity_tenant_unsealed_audit_events",
            "Audit events without a seal, of the worst tenants.",
            "unsealed_events",
        ),
    ):
        largest = TenantFigures.objects.filter(**{f"{field}__gt": 0}).order_by(f"-{field}")
        rows = largest.values_list("tenant__slug", field)[:LARGEST]
        yield gauge(name, text, ["tenant"], (([slug], value) for slug, value in rows))
    today = TenantDay.objects.filter(day=now().date(), sign_ins__gt=0).order_by("-sign_ins")
    most = today.values_list("tenant__slug", "sign_ins")[:LARGEST]
    text = "Sign-ins of this day (UTC) in the tenants with most of them."
    yield gauge("identity_tenant_sign_ins_today", text, ["tenant"], (([slug], value) for slug, value in most))
    waiting = Job.objects.filter(state="waiting").aggregate(since=Min("created_at"))["since"]
    age = (now() - waiting).total_seconds() if waiting else 0.0
    yield gauge(
        "identity_job_oldest_seconds", "The longest wait of a job that was started in the console.", [], [([], age)]
    )


def _mails_of_the_platform() -> dict[str, int]:
    """Count the mails to admin users, as the figures of tenants count those to end users."""
    moment = now()
    pending = Q(status=PlatformMail.PENDING)
    return PlatformMail.objects.aggregate(
        mails_pending=Count("pk", filter=pending),
        mails_overdue=Count("pk", filter=pending & Q(created_at__lt=moment - timedelta(minutes=15))),
        mails_dead=Count("pk", filter=Q(settled_at__gt=moment - timedelta(days=1))),
    )


def _sums() -> Iterator[Metric]:
    sums: dict[str, Any] = TenantFigures.objects.aggregate(
        users=Sum("users"),
        active=Sum("active_users"),
        protected=Sum("protected_users"),
        size=Sum("database_bytes"),
        pending=Sum("pending_messages"),
        overdue=Sum("overdue_endpoints"),
        mails_pending=Sum("pending_mails"),
        mails_overdue=Sum("overdue_mails"),
        mails_dead=Sum("dead_mails"),
        unsealed=Sum("unsealed_events"),
        failing=Count("pk", filter=~Q(failure="")),
        newest=Max("collected_at"),
    )
    for key, number in _mails_of_the_platform().items():
        sums[key] = (sums[key] or 0) + number
    for name, text, key in (
        ("identity_users", "End users of all tenants.", "users"),
        ("identity_users_active", "Those that are active.", "active"),
        ("identity_users_protected", "Active users with a second factor.", "protected"),
        ("identity_databases_bytes", "Size of all tenant databases.", "size"),
        ("identity_webhook_messages_pending", "Webhook messages still to be sent.", "pending"),
        ("identity_webhook_endpoints_overdue", "Endpoints whose next message is due since five minutes.", "overdue"),
        ("identity_mails_pending", "Mails still to be sent.", "mails_pending"),
        ("identity_mails_overdue", "Mails that wait since 15 minutes.", "mails_overdue"),
        ("identity_mails_given_up", "Mails that were given up within a day.", "mails_dead"),
        ("identity_audit_events_unsealed", "Audit events of tenants without a seal.", "unsealed"),
        ("identity_figures_failing_tenants", "Tenants whose database could not be read.", "failing"),
    ):
        yield gauge(name, text, [], [([], sums[key] or 0)])
    if sums["newest"]:
        age = (now() - sums["newest"]).total_seconds()
        yield gauge("identity_figures_age_seconds", "Age of these metrics.", [], [([], age)])
