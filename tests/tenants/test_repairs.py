"""`check_tenants` finds what is wrong, repairs what it may, and drops only what it is told to."""

import secrets
from collections.abc import Callable

import pytest
from django.core.management import CommandError
from psycopg import sql

from tenants import databases, repairs, warm_pool
from tenants.capacity import main_server
from tenants.databases import template_prefix
from tenants.models import DatabaseServer, Tenant, TenantDatabase, WarmDatabase
from tests.tenants.conftest import databases_on, said_by


def found_about(subject: str) -> list[str]:
    return [str(finding.kind) for finding in repairs.find_problems() if finding.subject == subject]


def check(**options: bool) -> tuple[int, str]:
    """Exit code and words of check_tenants."""
    from io import StringIO

    from django.core.management import call_command

    out = StringIO()
    try:
        call_command("check_tenants", stdout=out, **options)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def make_database(name: str) -> None:
    with databases.maintenance_connection(main_server()) as raw:
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))


def drop_database(name: str) -> None:
    with databases.maintenance_connection(main_server()) as raw:
        databases.drop(raw, name)


def test_nothing_is_said_of_a_healthy_tenant(new_bare_tenant: Callable[[], Tenant]) -> None:
    assert found_about(new_bare_tenant().slug) == []


def test_an_orphan_is_found_and_dropped_only_when_asked_for() -> None:
    name = warm_pool.new_database_name()
    make_database(name)
    code, said = check()
    assert (code, f"orphan database\tmain\t{name}" in said) == (1, True)
    check(repair=True, yes=True)
    assert name in databases_on(main_server())
    check(drop_orphans=True, yes=True)
    assert name not in databases_on(main_server())
    assert found_about(name) == []


def test_nothing_is_dropped_without_a_word_from_a_person() -> None:
    name = warm_pool.new_database_name()
    make_database(name)
    with pytest.raises(CommandError, match="--yes"):
        check(drop_orphans=True)
    assert name in databases_on(main_server())
    drop_database(name)


def test_a_tenant_without_its_database_is_marked_failed_and_comes_back_with_it(
    new_bare_tenant: Callable[[], Tenant],
) -> None:
    tenant = new_bare_tenant()
    drop_database(tenant.database.name)
    assert found_about(tenant.slug) == ["database missing"]
    code, _ = check(repair=True, yes=True)
    mapping = TenantDatabase.objects.get(pk=tenant.pk)
    assert (code, mapping.status, mapping.reason) == (1, "failed", "the database is missing")
    assert found_about(tenant.slug) == ["failed"]
    make_database(tenant.database.name)
    check(repair=True, yes=True)
    assert TenantDatabase.objects.get(pk=tenant.pk).status == "active"


def test_a_suspended_tenant_without_its_database_stays_suspended(new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    said_by("suspend_tenant", tenant.slug)
    drop_database(tenant.database.name)
    check(repair=True, yes=True)
    mapping = TenantDatabase.objects.get(pk=tenant.pk)
    assert (mapping.status, mapping.reason) == ("suspended", "the database is missing")


@pytest.mark.parametrize(
    ("left", "kind"),
    [("migrating", "interrupted migration"), ("moving", "interrupted move"), ("deleting", "interrupted deletion")],
)
def test_what_a_crash_left_is_found_and_finished(left: str, kind: str, new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    TenantDatabase.objects.filter(pk=tenant.pk).update(status=left)
    assert found_about(tenant.slug) == [kind]
    check(repair=True, yes=True)
    ended = TenantDatabase.objects.get(pk=tenant.pk).status
    assert ended == ("deleted" if left == "deleting" else "active")


def test_a_job_that_runs_is_left_alone(new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    TenantDatabase.objects.filter(pk=tenant.pk).update(status="migrating")
    with databases.job_lock(main_server(), tenant.pk):
        assert found_about(tenant.slug) == []
    assert found_about(tenant.slug) == ["interrupted migration"]


def test_a_job_that_has_ended_has_let_go_of_its_lock() -> None:
    subject = secrets.token_hex(8)
    with databases.maintenance_connection(main_server()) as raw:
        for _ in range(100):
            with databases.job_lock(main_server(), subject):
                pass
            assert not databases.is_job_running(raw, subject)


def test_old_templates_go_and_newer_ones_stay() -> None:
    old, newer, half_made = (
        f"{template_prefix()}{version}" for version in ("0_0123456789ab", "9999_0123456789ab", "9999_ab_making")
    )
    for name in (old, newer, half_made):
        make_database(name)
    check(repair=True, yes=True)
    assert databases_on(main_server()) & {old, newer, half_made} == {newer}
    drop_database(newer)


def test_a_spare_that_is_gone_is_forgotten() -> None:
    warm_pool.refill(main_server(), 1)
    spare = WarmDatabase.objects.filter(ready=True).first()
    assert spare is not None
    drop_database(spare.name)
    assert found_about(spare.name) == ["missing spare"]
    check(repair=True, yes=True)
    assert not WarmDatabase.objects.filter(name=spare.name).exists()


def test_a_server_that_does_not_answer_is_named() -> None:
    from tenants.servers import seal_url

    name = f"dark-{secrets.token_hex(3)}"
    url = "postgresql://nobody:hidden@127.0.0.1:1/?connect_timeout=1"
    DatabaseServer.objects.create(
        name=name, host="dark", accepts_tenants=False, url_sealed=seal_url(name, "url_sealed", url)
    )
    code, said = check()
    DatabaseServer.objects.get(name=name).delete()
    assert code == 1
    assert f"server unreachable\t{name}" in said
    assert "hidden" not in said
