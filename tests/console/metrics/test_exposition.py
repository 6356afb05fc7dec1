"""What Prometheus learns of the collected metrics: sums, and the largest tenants by name."""

import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import connections
from django.utils.timezone import now

from console.jobs.models import Job
from console.metrics import exposition
from console.metrics.models import TenantFigures
from tenants.entering.context import in_tenant
from tenants.journals import audit_trails
from tenants.models import Tenant
from tests.tenants.conftest import run_command
from tests.world import TestTenant, capture_statements
from userflow.events.models import WebhookEndpoint, WebhookMessage
from userflow.mail.models import PlatformMail, TenantMail
from userflow.mail_delivery.sending import wakeups


def collected() -> dict[str, dict[str, float]]:
    """Return the values of each metric by its label, which is empty for a metric without one."""
    return {
        metric.name: {"".join(sample.labels.values()): sample.value for sample in metric.samples}
        for metric in exposition.collect()
    }


@pytest.fixture
def large() -> Iterator[list[Tenant]]:
    """Tenants that are larger than any other, without databases, as metrics are read from the global one."""
    mark = secrets.token_hex(3)
    made = [Tenant.objects.create(name="Large", slug=f"large-{mark}-{number}") for number in range(25)]
    for number, tenant in enumerate(made):
        TenantFigures.objects.create(
            tenant=tenant, users=10**9 + number, database_bytes=10**12 + number, collected_at=now()
        )
    yield made
    Tenant.objects.filter(pk__in=[tenant.pk for tenant in made]).delete()


def test_only_the_largest_tenants_have_series(large: list[Tenant]) -> None:
    found = collected()
    named = {tenant.slug for tenant in large[-exposition.LARGEST :]}
    assert set(found["identity_tenant_users"]) == set(found["identity_tenant_database_bytes"]) == named
    assert found["identity_users"][""] >= 25 * 10**9
    assert found["identity_figures_age_seconds"][""] < 60


def test_scrape_has_a_fixed_number_of_statements(large: list[Tenant]) -> None:
    with capture_statements() as made:
        collected()
    # The sums, the platform's mails, five lists of the largest, the oldest waiting job.
    assert made.counts == (8, 0)


def test_backlogs_of_a_tenant_are_collected(new_tenant: Callable[[], TestTenant]) -> None:
    own = new_tenant()
    with in_tenant(own.id):
        late = WebhookEndpoint.objects.create(url="https://a.example/", secret_sealed=b"-")
        disabled = WebhookEndpoint.objects.create(url="https://b.example/", secret_sealed=b"-", enabled=False)
        due = now() - timedelta(minutes=6)
        for endpoint in (late, disabled):
            WebhookMessage.objects.create(
                endpoint_id=endpoint.pk, message_id="m", event="end_user.created", body="{}", next_attempt_at=due
            )
        with connections["tenant"].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM audit_tenantevent")
            (events,) = cursor.fetchone()
    run_command("collect_figures", tenant=[own.slug], settled=0)
    figures = TenantFigures.objects.get(pk=own.id)
    assert (figures.pending_messages, figures.overdue_endpoints, figures.unsealed_events) == (2, 1, events)
    found = collected()
    assert found["identity_webhook_endpoints_overdue"][""] >= 1
    with in_tenant(own.id):
        WebhookMessage.objects.filter(endpoint_id=late.pk).update(next_attempt_at=now())
    audit_trails.seal(audit_trails.Owner(own.slug, own.id), wait=120)
    run_command("collect_figures", tenant=[own.slug], settled=0)
    figures.refresh_from_db()
    assert (figures.overdue_endpoints, figures.unsealed_events) == (0, 0)


def test_mails_of_a_tenant_are_counted_and_their_deliverer_is_woken(tenant: TestTenant) -> None:
    common = {"template": "email_verified", "address": "a@example.com", "content_sealed": b"-"}
    # This process sends mails too, and would give up those that are due: their content cannot be read.
    later = now() + timedelta(days=1)
    with in_tenant(tenant.id):
        TenantMail.objects.all().delete()
        for status, hours in (("pending", 0), ("pending", 1), ("dead", 1), ("dead", 25)):
            moment = now() - timedelta(hours=hours)
            mail = TenantMail.objects.create(status=status, next_attempt_at=later, expires_at=later, **common)
            settled = moment if status == "dead" else None
            TenantMail.objects.filter(pk=mail.pk).update(created_at=moment, settled_at=settled)
    wakeups.take_due(10_000)
    run_command("collect_figures", tenant=[tenant.slug], settled=0)
    figures = TenantFigures.objects.get(pk=tenant.id)
    assert (figures.pending_mails, figures.overdue_mails, figures.dead_mails) == (2, 1, 1)
    assert str(tenant.id) in wakeups.take_due(10_000)
    with in_tenant(tenant.id):
        TenantMail.objects.all().delete()


def test_mails_of_the_platform_are_counted() -> None:
    before = collected()
    expires = now() + timedelta(days=1)
    mail = PlatformMail.objects.create(
        template="email_verified", address="a@example.com", content_sealed=b"-", expires_at=expires
    )
    PlatformMail.objects.filter(pk=mail.pk).update(created_at=now() - timedelta(hours=1), next_attempt_at=expires)
    try:
        after = collected()
        for name in ("identity_mails_pending", "identity_mails_overdue"):
            assert after[name][""] == before[name][""] + 1
    finally:
        mail.delete()


def test_waiting_job_is_shown_with_its_age() -> None:
    job = Job.objects.create(kind="provision")
    Job.objects.filter(pk=job.pk).update(created_at=now() - timedelta(days=400))
    try:
        assert collected()["identity_job_oldest_seconds"][""] == pytest.approx(400 * 86_400, abs=60)
    finally:
        job.delete()
