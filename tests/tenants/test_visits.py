"""Which tenants a periodic task visits: PostgreSQL says whose database was written."""

import time
from collections.abc import Callable
from datetime import timedelta

from django.utils.timezone import now

from console.metrics.actions import collect_figures
from console.metrics.models import TenantFigures
from tenants.backend.pool import POOL
from tenants.database_servers import servers
from tenants.database_servers.visits import Visits
from tenants.entering.context import in_tenant
from tenants.journals import audit_trails
from tenants.models import TenantDatabase
from tests.machine.conftest import within
from tests.world import TestTenant
from userflow.mail.models import TenantMail
from userflow.mail_delivery import background

COUNTED_WITHIN_SECONDS = 60.0


def report_writes(tenant: TestTenant) -> None:
    """Let the connections to the tenant's database report now what they have written: they do when they end."""
    assert background.settle()
    POOL.close_idle(tenant.row.database.name)
    # A pooler would keep them.
    with servers.maintenance(tenant.row.database.server) as raw:
        ended = raw.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s AND usename = current_user",
            [tenant.row.database.name],
        ).fetchall()
    assert all(was_ended for (was_ended,) in ended)


def all_visited(visits: Visits) -> None:
    visits.unchanged()
    for tenant_id in TenantDatabase.objects.values_list("pk", flat=True):
        visits.visited(tenant_id)


def settle(visits: Visits, *tenants: TestTenant) -> None:
    """Visit the tenants until their earlier writes are counted."""
    for tenant in tenants:
        report_writes(tenant)

    def is_settled() -> bool:
        all_visited(visits)
        return {tenant.id for tenant in tenants} <= visits.unchanged()

    assert within(COUNTED_WITHIN_SECONDS, is_settled)


def write(tenant: TestTenant) -> None:
    tenant.register()
    report_writes(tenant)


def test_database_that_was_written_is_visited_again(new_tenant: Callable[[], TestTenant]) -> None:
    written, quiet = new_tenant(), new_tenant()
    visits = Visits(settled=0)
    assert not {written.id, quiet.id} & visits.unchanged()
    settle(visits, written, quiet)
    write(written)
    assert within(COUNTED_WITHIN_SECONDS, lambda: written.id not in visits.unchanged())
    assert quiet.id in visits.unchanged()
    settle(visits, written)


def test_visit_soon_after_a_write_is_repeated(tenant: TestTenant) -> None:
    visits = Visits(settled=0.5)
    all_visited(visits)
    # An event may be too young to be counted or sealed.
    assert tenant.id not in visits.unchanged()
    time.sleep(0.5)
    visits.visited(tenant.id)
    assert tenant.id in visits.unchanged()


def test_every_tenant_is_visited_from_time_to_time(tenant: TestTenant) -> None:
    visits = Visits(settled=0, anyway=0.5)
    settle(visits, tenant)
    time.sleep(0.5)
    assert tenant.id not in visits.unchanged()


def test_figures_of_unchanged_tenants_are_current_without_a_visit(new_tenant: Callable[[], TestTenant]) -> None:
    written, quiet = new_tenant(), new_tenant()
    slugs = [written.slug, quiet.slug]
    collect_figures(only=slugs, settled=0)
    visits = Visits(settled=0)
    settle(visits, written, quiet)
    write(written)
    assert within(COUNTED_WITHIN_SECONDS, lambda: written.id not in visits.unchanged())
    long_ago = TenantFigures.objects.get(pk=quiet.id).collected_at
    assert long_ago is not None
    TenantFigures.objects.filter(pk=quiet.id).update(collected_at=long_ago - timedelta(days=1))
    outcomes = collect_figures(only=slugs, settled=0, visits=visits)
    assert [(outcome.slug, outcome.failure) for outcome in outcomes] == [(written.slug, "")]
    figures = TenantFigures.objects.in_bulk([written.id, quiet.id])
    assert (figures[written.id].users, figures[quiet.id].users) == (1, 0)
    current = figures[quiet.id].collected_at
    assert current is not None
    assert current >= long_ago


def test_tenant_with_pending_mails_is_visited_every_time(new_tenant: Callable[[], TestTenant]) -> None:
    # They become overdue without a write, and their wake-up may be lost.
    tenant = new_tenant()
    later = now() + timedelta(days=1)
    with in_tenant(tenant.id):
        mail = TenantMail.objects.create(
            template="verify", address="x", content_sealed=b"", next_attempt_at=later, expires_at=later
        )
    visits = Visits(settled=0)
    settle(visits, tenant)
    with in_tenant(tenant.id):
        TenantMail.objects.filter(pk=mail.pk).update(next_attempt_at=later + timedelta(days=1))
    report_writes(tenant)
    assert within(COUNTED_WITHIN_SECONDS, lambda: tenant.id not in visits.unchanged())
    for _ in range(2):
        assert [outcome.slug for outcome in collect_figures(only=[tenant.slug], visits=visits)] == [tenant.slug]


def test_trails_of_unchanged_tenants_are_not_opened(new_tenant: Callable[[], TestTenant]) -> None:
    written, quiet = new_tenant(), new_tenant()
    quiet.register()
    visits = Visits(settled=0)
    settle(visits, written, quiet)
    write(written)
    assert within(COUNTED_WITHIN_SECONDS, lambda: written.id not in visits.unchanged())
    audit_trails.seal_all(wait=120, visits=visits)
    unsealed = [audit_trails.verify(audit_trails.Owner(each.slug, each.id)).unsealed for each in (written, quiet)]
    assert unsealed[0] == 0
    # Its registration is an event, but `settle` has noted a visit since.
    assert unsealed[1] > 0
