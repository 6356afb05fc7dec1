"""Creating tenants: from a spare database, from the template, and with the same slug at the same time."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from tenants.consistency import repairs
from tenants.entering.context import in_tenant
from tenants.errors import NoRoom
from tenants.lifecycle import provisioning, warm_pool
from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, DataKey, Tenant, TenantDatabase, WarmDatabase
from tests.copies import change_mapping
from tests.tenants.conftest import connect_to, databases_on, throw_away
from tests.world import Api, TestTenant
from userflow.accounts.models import AdminUser, EndUser
from userflow.errors import AdminNameTaken
from userflow.tenants.actions import open_tenant


def a_slug() -> str:
    return f"slug-{secrets.token_hex(4)}"


def test_create_claims_spare_without_create_database(new_bare_tenant: Callable[[], Tenant]) -> None:
    warm_pool.refill(main_server(), 1)
    waiting = set(WarmDatabase.objects.values_list("name", flat=True))
    with CaptureQueriesContext(connection) as statements:
        tenant = new_bare_tenant()
    assert tenant.database.name in waiting
    assert not WarmDatabase.objects.filter(name=tenant.database.name).exists()
    assert not any("CREATE DATABASE" in statement["sql"] for statement in statements)
    with in_tenant(tenant.pk):
        assert EndUser.objects.count() == 0


def test_create_without_spare_copies_template(no_spares: None, new_bare_tenant: Callable[[], Tenant]) -> None:
    tenant = new_bare_tenant()
    assert tenant.database.status == "active"
    with in_tenant(tenant.pk):
        assert EndUser.objects.count() == 0
    assert not [f for f in repairs.find_problems() if f.kind is repairs.Kind.ORPHAN]


def test_each_spare_is_claimed_once(django_db_blocker: Any) -> None:
    warm_pool.refill(main_server(), 6)

    def make(number: int) -> Tenant:
        with django_db_blocker.unblock():
            try:
                return provisioning.create_tenant(name=f"Claimer {number}", slug=a_slug())
            finally:
                connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(8)))
    assert len({tenant.database.name for tenant in made}) == 8
    for tenant in made:
        throw_away(tenant)


@pytest.mark.parametrize("spares", [0, 4])
def test_concurrent_creates_with_one_slug_give_one_tenant(spares: int, no_spares: None, operator: Api) -> None:
    warm_pool.refill(main_server(), spares)
    slug, before = a_slug(), databases_on(main_server())

    def ask(number: int) -> int:
        try:
            return int(operator.post("/uflow/admin/tenants", {"name": f"Number {number}", "slug": slug}).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        responses = sorted(pool.map(ask, range(4)))
    assert responses == [201, 409, 409, 409]
    [mapping] = TenantDatabase.objects.select_related("tenant").filter(tenant__slug=slug)
    assert databases_on(main_server()) - before <= {mapping.name}
    assert not [f for f in repairs.find_problems() if f.kind in (repairs.Kind.ORPHAN, repairs.Kind.PROVISIONING)]
    throw_away(mapping.tenant)


@pytest.mark.parametrize("spares", [0, 1])
def test_rejected_create_leaves_nothing(spares: int, no_spares: None, tenant: TestTenant) -> None:
    warm_pool.refill(main_server(), spares)
    slug, before, keys = a_slug(), databases_on(main_server()), DataKey.objects.count()
    taken = {"username": tenant.admin.username, "email": "new@example.com", "password": tenant.admin.password}
    with pytest.raises(AdminNameTaken):
        open_tenant(name="Refused", slug=slug, admin=taken)
    assert not Tenant.objects.filter(slug=slug).exists()
    assert databases_on(main_server()) == before
    assert DataKey.objects.count() == keys


def test_taken_generated_slug_gets_suffix(operator: Api) -> None:
    name = f"Ünïque Name {secrets.token_hex(4)}"
    made = [operator.post("/uflow/admin/tenants", {"name": name}).json() for _ in range(2)]
    assert made[0]["slug"] == f"uenique-{name.lower().partition(' ')[2].replace(' ', '-')}"
    assert made[1]["slug"].startswith(made[0]["slug"] + "-")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("Größe & Söhne", "groesse-soehne"),
        ("GRÖẞE", "groesse"),
        ("Gro\u0308ße", "groesse"),
        ("Crème Brûlée Île", "creme-brulee-ile"),
        ("Ærø Łódź", "aero-lodz"),
        ("Þór Đặng İzmir", "thor-dang-izmir"),
        ("株式会社", "tenant"),
        ("Ａｃｍｅ ２", "acme-2"),
        ("ä" * 60, "ae" * 25),
    ],
)
def test_generated_slug_is_ascii(name: str, start: str, operator: Api) -> None:
    made = operator.post("/uflow/admin/tenants", {"name": name})
    assert (made.status_code, made.json()["slug"][: len(start)][:45]) == (201, start[:45])


def test_delete_removes_one_tenant_and_keeps_others(
    new_tenant: Callable[[], TestTenant], other_tenant: TestTenant
) -> None:
    tenant, others = new_tenant(), AdminUser.objects.filter(tenant_id=other_tenant.id).count()
    person = tenant.register()
    with connect_to(tenant.row):  # for example a pooler's connection
        provisioning.delete_tenant(tenant_id=tenant.id)
    assert tenant.row.database.name not in databases_on(main_server())
    assert not AdminUser.objects.filter(tenant_id=tenant.id).exists()
    assert not DataKey.objects.filter(owner=str(tenant.id)).exists()
    assert AdminUser.objects.filter(tenant_id=other_tenant.id).count() == others
    assert tenant.api.get("/uflow/admin/users/me").status_code == 401
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": person.password}
    assert Api().post("/uflow/auth/enduser/login", login).status_code == 401


def test_deleted_slug_is_free() -> None:
    slug = a_slug()
    first = provisioning.create_tenant(name="First", slug=slug)
    provisioning.delete_tenant(tenant_id=first.pk)
    second = provisioning.create_tenant(name="Second", slug=slug)
    assert second.pk != first.pk
    throw_away(second)


def test_deleted_tenants_use_no_capacity() -> None:
    server = DatabaseServer.objects.create(name=f"small-{secrets.token_hex(3)}", host="nowhere", capacity=1)
    tenant = Tenant.objects.create(name="Gone", slug=a_slug())
    mapping = TenantDatabase.objects.create(tenant=tenant, server=server, name="gone", status="deleted")
    from tenants.lifecycle.capacity import server_with_room

    assert server_with_room(server.name) == server
    change_mapping(mapping.pk, status="failed")
    with pytest.raises(NoRoom):
        server_with_room(server.name)
    tenant.delete()
    server.delete()
