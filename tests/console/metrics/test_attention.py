"""What needs attention, on the dashboard and in the lists that it leads to."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from django.utils.timezone import now
from jwt.algorithms import ECAlgorithm

from console.jobs.models import Job
from console.metrics.models import TenantDay, TenantFigures
from identity_platform.audit.models import PlatformEvent
from registry.actions import create_credential, create_service
from tenants.entering.context import in_tenant
from tenants.models import DatabaseServer, DomainClaim, ServerHealth, TenantDatabase
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.copies import change_mapping
from tests.tenants.conftest import run_command
from tests.world import TestTenant
from userflow.directory.models import DirectoryConfig
from userflow.events.models import WebhookEndpoint
from userflow.sessions.models import SigningKey

HOME = "/admin/"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OF_TENANTS = {
    "Rejected sign-ins since yesterday, unusually many": 70,
    "Webhook endpoints that fail or were disabled because they failed": 2,
    "Directories whose last synchronization failed": 1,
    "Credentials of services that expire within 14 days or have just expired": 2,
    "Domains whose DNS record is lost": 1,
}


def shown(staff: Staff) -> dict[str, tuple[int, str]]:
    """Return the counts and links on the dashboard by title."""
    lines = staff.get(HOME).context["attention"]
    return {str(line.title): (line.count, line.link) for line in lines}


def add_problems(tenant: TestTenant) -> None:
    """Add the problems of OF_TENANTS, and beside each something that needs no attention."""
    TenantFigures.objects.update_or_create(
        tenant_id=tenant.id, defaults={"failing_endpoints": 2, "rejected_sign_ins": 70, "needs_attention": True}
    )
    for name, since in (("Failing", now()), ("Well", None)):
        DirectoryConfig.objects.create(
            tenant_id=tenant.id, kind="entra_id", name=name, secret=b"", secret_set_at=now(), failing_since=since
        )
        DomainClaim.objects.create(domain=f"{uuid4().hex[:12]}.example", tenant_id=tenant.id, lost_since=since)
    service = create_service(tenant_id=tenant.id, name="Payments", type="payment", base_url="https://a.example.com")
    for name, days in (("expired", -3), ("soon", 5), ("later", 60)):
        credential = create_credential(tenant_id=tenant.id, service_id=service.pk, name=name, secret="s3cret")
        type(credential).objects.filter(pk=credential.pk).update(expires_at=now() + days * DAY)


def test_tenant_admin_sees_problems_of_own_tenant(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, other = new_tenant(), new_tenant()
    create_service(tenant_id=tenant.id, name="Quiet", type="payment", base_url="https://b.example.com")
    add_problems(tenant)
    add_problems(other)
    admin = new_tenant_admin(tenant).sign_in()
    found = shown(admin)
    assert {title: count for title, (count, _link) in found.items()} == OF_TENANTS
    pages = {title: admin.get(link) for title, (_count, link) in found.items()}
    assert {page.status_code for page in pages.values()} == {200}
    services = pages["Credentials of services that expire within 14 days or have just expired"].text
    assert ("Payments" in services, "Quiet" in services) == (True, False)


def test_operator_finds_the_tenants_with_problems(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, other = new_tenant(), new_tenant()
    add_problems(tenant)
    TenantFigures.objects.update_or_create(tenant_id=other.id, defaults={"failure": "", "needs_attention": False})
    operator = new_operator().sign_in()
    found = shown(operator)
    for title, count in OF_TENANTS.items():
        assert found[title][0] >= count
        link = found[title][1]
        assert link.startswith("/admin/tenants/tenant/?attention=")
        for one, listed in ((tenant, [tenant.slug]), (other, [])):
            rows = operator.get(f"{link}&q={one.slug}").context["cl"].result_list
            assert [row.slug for row in rows] == listed, title


def test_each_problem_requires_its_permission(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    add_problems(tenant)
    domains, webhooks = "Domains whose DNS record is lost", "Webhook endpoints that fail or were disabled"
    assert list(shown(new_tenant_admin(tenant, "domains:read").sign_in())) == [domains]
    operator = new_operator("tenants:read", "domains:read").sign_in()
    titles = list(shown(operator))
    assert (domains in titles, [title for title in titles if title.startswith(webhooks)]) == (True, [])
    for nothing in (new_operator("domains:read"), new_tenant_admin(tenant, "clients:read")):
        assert "Needs attention" not in nothing.sign_in().get(HOME).text


def test_nothing_to_do_is_one_sentence(new_tenant: Callable[[], TestTenant]) -> None:
    page = new_tenant_admin(new_tenant()).sign_in().get(HOME).text
    assert "Nothing needs attention at the moment." in page


@pytest.fixture
def troubled_platform(new_tenant: Callable[[], TestTenant]) -> Iterator[None]:
    """A platform with a problem of each of its kinds."""
    failed, outdated, unreadable = new_tenant(), new_tenant(), new_tenant()
    change_mapping(failed.id, status="failed")
    current = TenantDatabase.objects.get(pk=outdated.id).schema_version
    TenantDatabase.objects.filter(pk=outdated.id).update(schema_version="1-older")
    TenantFigures.objects.update_or_create(tenant_id=unreadable.id, defaults={"failure": "the server is away"})
    jobs = [
        Job.objects.create(kind="backup", state="failed", ended_at=now() - HOUR),
        Job.objects.create(kind="backup", state="failed", ended_at=now() - 8 * DAY),
        # No worker has it and it does not wait in the queue.
        Job.objects.create(kind="migrate", state="running"),
    ]
    servers = [
        DatabaseServer.objects.create(name=f"troubled-{place}", host="there", capacity=10, accepts_tenants=place == 2)
        for place in range(3)
    ]
    ServerHealth.objects.create(server=servers[0], responds=False, checked_at=now())
    ServerHealth.objects.create(server=servers[1], responds=True, tenants=9, checked_at=now())
    # A whole public key: every sign-in meanwhile reads it as one that may verify tokens.
    public = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    old = SigningKey.objects.create(
        kid=uuid4().hex, public_jwk={**public, "alg": "ES256"}, private_sealed=b"", signs_from=now() - 101 * DAY
    )
    SigningKey.objects.filter(pk=old.pk).update(created_at=now() - 101 * DAY)
    PlatformEvent.objects.create(
        at=now() - 2 * DAY, action="backup.written", outcome="success", details={"whole": True, "failed": 3}
    )
    yield
    Job.objects.filter(pk__in=[job.pk for job in jobs]).delete()
    DatabaseServer.objects.filter(pk__in=[server.pk for server in servers]).delete()
    old.delete()
    TenantDatabase.objects.filter(pk=outdated.id).update(schema_version=current)
    TenantFigures.objects.filter(pk=unreadable.id).update(failure="")


def test_operator_sees_problems_of_the_platform(troubled_platform: None) -> None:
    operator = new_operator().sign_in()
    found = shown(operator)
    expected = {
        "Database servers that do not respond": 1,
        "Tenants whose last operation failed": 1,
        "Tenants whose database could not be read": 1,
        "Tenants with an outdated schema": 1,
        "Jobs that failed in the last seven days or were interrupted": 2,
        "Database servers that are nearly full": 1,
        "Database servers without a warm database": 1,
        "Signing keys of the platform that are overdue for rotation": 1,
        "Days since the last backup of all tenants": 2,
        "Tenants that the last backup could not include": 3,
    }
    for title, count in expected.items():
        assert (title, found.get(title, (0, ""))[0] >= count) == (title, True)
        assert (title, operator.get(found[title][1]).status_code) == (title, 200)
    number, link = found["Jobs that failed in the last seven days or were interrupted"]
    assert operator.get(link).context["cl"].result_count == number


def test_collection_counts_failing_endpoints_and_rejections(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    with in_tenant(tenant.id):
        for enabled, reason, since in (
            (True, "", now() - HOUR),
            (False, "gone", now()),
            (True, "", now()),
            (False, "admin", now() - HOUR),
        ):
            WebhookEndpoint.objects.create(
                url="x", secret_sealed=b"", enabled=enabled, disabled_reason=reason, failing_since=since
            )
    today = now().date()
    for days, failures in ((0, 20), (1, 300), (5, 70)):
        TenantDay.objects.create(tenant_id=tenant.id, day=today - days * DAY, failures=failures)
    assert collected(tenant) == (2, 300, True)
    TenantDay.objects.filter(tenant_id=tenant.id, day=today - 5 * DAY).update(failures=1400)
    with in_tenant(tenant.id):
        WebhookEndpoint.objects.all().delete()
    assert collected(tenant) == (0, 0, False)


def collected(tenant: TestTenant) -> tuple[int, int, bool]:
    run_command("collect_figures", tenant=[tenant.slug], settled=0)
    figures = TenantFigures.objects.get(pk=tenant.id)
    return figures.failing_endpoints, figures.rejected_sign_ins, figures.needs_attention
