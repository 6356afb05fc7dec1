"""A new slug changes the issuer: it is confirmed, and the former slug stays the tenant's."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connections

from tenants.errors import SlugTaken
from tenants.lifecycle import final_backups, provisioning
from tenants.models import FinalBackup, FormerSlug, Tenant
from tests.console.staff import Staff, new_operator
from tests.console.tenants.test_pages import page
from tests.tenants.conftest import run_command, throw_away
from tests.world import Api, TestTenant
from userflow.accounts.models import Client

TENANTS = "/uflow/admin/tenants"


def a_slug() -> str:
    return f"renamed-{secrets.token_hex(4)}"


def rename(operator: Api, tenant: TestTenant, slug: str) -> None:
    response = operator.patch(
        f"{TENANTS}/{tenant.id}", {"slug": slug, "confirm": Tenant.objects.get(pk=tenant.id).slug}
    )
    assert response.status_code == 200, response.content


def test_new_slug_is_confirmed_with_the_present_one(operator: Api, new_tenant: Callable[[], TestTenant]) -> None:
    tenant, slug = new_tenant(), a_slug()
    for confirm in ({}, {"confirm": slug}):
        response = operator.patch(f"{TENANTS}/{tenant.id}", {"slug": slug, **confirm})
        assert (response.status_code, response.json()["code"]) == (400, "slug_change_not_confirmed")
    assert operator.patch(f"{TENANTS}/{tenant.id}", {"slug": tenant.slug, "name": "Same slug"}).status_code == 200
    rename(operator, tenant, slug)
    assert Tenant.objects.get(pk=tenant.id).slug == slug


def test_former_slug_stays_reserved(
    operator: Api, new_tenant: Callable[[], TestTenant], other_tenant: TestTenant
) -> None:
    tenant, slug = new_tenant(), a_slug()
    former = tenant.slug
    rename(operator, tenant, slug)
    assert operator.post(TENANTS, {"name": "Thief", "slug": former}).status_code == 409
    taken = operator.patch(f"{TENANTS}/{other_tenant.id}", {"slug": former, "confirm": other_tenant.slug})
    assert (taken.status_code, taken.json()["code"]) == (409, "slug_taken")
    assert operator.post(TENANTS, {"name": former}).json()["slug"] != former
    # Its own tenant returns to it, and the other one is reserved then.
    rename(operator, tenant, former)
    assert list(FormerSlug.objects.filter(tenant_id=tenant.id).values_list("slug", flat=True)) == [slug]


def test_former_address_redirects_and_keeps_the_keys(operator: Api, new_tenant: Callable[[], TestTenant]) -> None:
    tenant, slug = new_tenant(), a_slug()
    former = tenant.slug
    keys = Api().get(f"/t/{former}/jwks").json()
    rename(operator, tenant, slug)
    page_there = Api().get(f"/t/{former.upper()}/reset?ui_locales=de")
    assert (page_there.status_code, page_there.headers["Location"].partition("/t/")[2]) == (
        302,
        f"{slug}/reset?ui_locales=de",
    )
    # Tokens of the former issuer are verified until they expire; nothing new has that issuer.
    assert Api().get(f"/t/{former}/jwks").json() == keys == Api().get(f"/t/{slug}/jwks").json()
    assert Api().get(f"/t/{former}/.well-known/openid-configuration").status_code == 404
    assert Api().post(f"/t/{former}/token", {}).status_code == 404
    assert Api().get(f"/t/{slug}/.well-known/openid-configuration").json()["issuer"].endswith(f"/t/{slug}")


def test_refresh_token_survives_a_new_slug(operator: Api, new_tenant: Callable[[], TestTenant]) -> None:
    tenant, slug = new_tenant(), a_slug()
    session = tenant.sign_in(tenant.register())
    rename(operator, tenant, slug)
    assert Api(token=session["access_token"]).get("/authmgr/profile").status_code == 401
    client = str(Client.objects.get(tenant_id=tenant.id, is_default=True).pk)
    body = {"grant_type": "refresh_token", "refresh_token": session["refresh_token"], "client_id": client}
    renewed = Api().post("/authmgr/token", body)
    assert renewed.status_code == 200, renewed.content
    assert Api(token=renewed.json()["access_token"]).get("/authmgr/profile").status_code == 200


def test_former_slug_is_reserved_while_the_tenant_can_be_restored(
    operator: Api, new_tenant: Callable[[], TestTenant], settings: Any, tmp_path: Path
) -> None:
    settings.DELETED_TENANT_BACKUP_DAYS, settings.BACKUP_FOLDER = 7, tmp_path
    tenant, slug = new_tenant(), a_slug()
    former = tenant.slug
    rename(operator, tenant, slug)
    run_command("delete_tenant", slug, yes=True)
    for reserved in (former, slug):
        assert operator.post(TENANTS, {"name": "Thief", "slug": reserved}).status_code == 409
    assert Api().get(f"/t/{slug}/jwks").status_code == 404
    run_command("restore_deleted_tenant", FinalBackup.objects.get(pk=tenant.id).file)
    assert Tenant.objects.get(pk=tenant.id).slug == slug
    assert list(FormerSlug.objects.filter(tenant_id=tenant.id).values_list("slug", flat=True)) == [former]
    run_command("delete_tenant", slug, yes=True)
    FinalBackup.objects.filter(pk=tenant.id).update(delete_after="2020-01-01T00:00:00Z")
    final_backups.expire()
    assert not FormerSlug.objects.filter(tenant_id=tenant.id).exists()
    throw_away(provisioning.create_tenant(name="Later", slug=former))


def test_deletion_without_final_backup_frees_the_slugs(operator: Api, new_tenant: Callable[[], TestTenant]) -> None:
    tenant, slug = new_tenant(), a_slug()
    rename(operator, tenant, slug)
    run_command("delete_tenant", slug, yes=True)
    for free in (tenant.slug, slug):
        throw_away(provisioning.create_tenant(name="Later", slug=free))


def test_slug_that_is_given_up_meanwhile_is_not_taken(
    operator: Api, new_tenant: Callable[[], TestTenant], django_db_blocker: Any
) -> None:
    def take(slug: str) -> str:
        with django_db_blocker.unblock():
            try:
                throw_away(provisioning.create_tenant(name="Thief", slug=slug))
                return "taken"
            except SlugTaken:
                return "rejected"
            finally:
                connections.close_all()

    def give_up(tenant: TestTenant) -> str:
        with django_db_blocker.unblock():
            try:
                rename(operator, tenant, a_slug())
                return "renamed"
            finally:
                connections.close_all()

    for _ in range(5):
        tenant = new_tenant()
        with ThreadPoolExecutor(3) as threads:
            results = [threads.submit(give_up, tenant), *(threads.submit(take, tenant.slug) for _ in range(2))]
        assert [result.result() for result in results] == ["renamed", "rejected", "rejected"]


# --- console and command ---------------------------------------------------------------------------------------------


@pytest.fixture
def staff() -> Staff:
    return new_operator().sign_in()


def test_console_page_names_applications_and_wants_the_slug_typed(
    staff: Staff, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant, slug = new_tenant(), a_slug()
    shown = staff.get(page(tenant, "slug")).content.decode()
    client = Client.objects.get(tenant_id=tenant.id, is_default=True)
    assert client.name in shown
    assert str(client.pk) in shown
    assert f"/t/{tenant.slug}" in shown
    assert staff.post(page(tenant, "slug"), {"slug": slug, "typed": slug}).status_code == 400
    assert Tenant.objects.get(pk=tenant.id).slug == tenant.slug
    assert staff.post(page(tenant, "slug"), {"slug": slug, "typed": tenant.slug}).status_code == 302
    assert Tenant.objects.get(pk=tenant.id).slug == slug


def test_console_settings_do_not_change_the_slug(staff: Staff, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    assert 'name="slug"' not in staff.get(page(tenant, "settings")).content.decode()
    staff.post(page(tenant, "settings"), {"name": "Renamed", "slug": a_slug()})
    assert Tenant.objects.get(pk=tenant.id).slug == tenant.slug


def test_backups_are_listed_after_a_new_slug(
    staff: Staff, operator: Api, new_tenant: Callable[[], TestTenant], settings: Any, tmp_path: Path
) -> None:
    settings.BACKUP_FOLDER = tmp_path
    tenant = new_tenant()
    by_id, by_slug = (f"{name}-20261126T101010Z.backup" for name in (tenant.id, tenant.slug))
    for name in (by_id, by_slug, "other-20261126T101010Z.backup"):
        (tmp_path / name).touch()
    rename(operator, tenant, a_slug())
    shown = staff.get(page(tenant, "restore")).content.decode()
    assert [name in shown for name in (by_id, by_slug, "other-20261126T101010Z.backup")] == [True, True, False]


def test_change_slug_command_names_applications(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, slug = new_tenant(), a_slug()
    said = run_command("change_slug", tenant.slug, slug, yes=True)
    assert str(Client.objects.get(tenant_id=tenant.id, is_default=True).pk) in said
    assert said.endswith(f"/t/{slug} now.\n")
    with pytest.raises(CommandError):
        run_command("change_slug", slug, "Not A Slug", yes=True)
