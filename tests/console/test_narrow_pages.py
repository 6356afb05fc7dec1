"""Pages show and do no more than the API for the same permissions, also for unusual requests."""

import secrets
from collections.abc import Callable

import pytest

from console.jobs.models import Job
from console.metrics.models import TenantFigures
from tenants.entering.context import in_tenant
from tenants.models import Tenant, TenantDatabase
from tests.console.staff import new_auditor, new_operator, new_tenant_admin
from tests.console.tenants.test_steps import LIST, provision_form
from tests.console.test_every_url import add_rows
from tests.world import TestTenant
from userflow.accounts.models import AdminUser, EndUser, Role, RoleBinding

ADMINS, USERS, SESSIONS = (f"/admin/userflow/{name}/" for name in ("adminuser", "enduser", "endusersession"))
# None of these has a single meaning that could be stored and returned.
ODD_JSON = [
    '{"a": NaN}',
    '{"a": 1e400}',
    '{"a": "\\u0000"}',
    '{"a": "\\ud800"}',
    '{"a":' * 990 + "1" + "}" * 990,
    '{"a":1,"a":2}',
]


@pytest.fixture(scope="module")
def tenant(django_db_setup: None, new_world: Callable[[], TestTenant]) -> TestTenant:
    return new_world()


@pytest.fixture(scope="module")
def new_world(django_db_setup: None) -> Callable[[], TestTenant]:
    from tests.world import build_tenant

    return build_tenant


def test_lists_reject_lookups_on_password_hashes(tenant: TestTenant) -> None:
    boss, person = new_tenant_admin(tenant), tenant.register()
    spy = new_tenant_admin(tenant, "admins:read", "endusers:read").sign_in()
    with in_tenant(tenant.id):
        theirs = EndUser.objects.get(pk=person.id).password
    for path, whole in ((ADMINS, boss.row().password), (USERS, theirs)):
        responses = [spy.get(path, password__startswith=start).status_code for start in (whole[:40], "wrong")]
        assert responses == [400, 400]


@pytest.mark.parametrize("lookup", ["name__regex", "created_at__year", "metadata__x__regex", "id"])
def test_lists_reject_lookups_without_filter(tenant: TestTenant, lookup: str) -> None:
    operator = new_operator().sign_in().choose(tenant)
    for path in (ADMINS, USERS, SESSIONS, LIST, "/admin/registry/service/", "/admin/userflow/client/"):
        assert operator.get(path, **{lookup: "("}).status_code == 400


def test_list_filters_ignore_impossible_values(tenant: TestTenant) -> None:
    operator = new_operator().sign_in().choose(tenant)
    for path, names in (("/admin/registry/service/", ("type", "status")), (LIST, ("state", "server", "schema"))):
        for name in names:
            assert operator.get(path, **{name: "a\0"}).status_code == 200
    assert operator.get(f"/admin/userflow/adminrole/{'9' * 4400}/change/").status_code == 404


def test_session_list_requires_endusers_read(tenant: TestTenant) -> None:
    person = tenant.register(name="Zebulon Secretname")
    tenant.sign_in(person)
    assert new_tenant_admin(tenant, "sessions:read").sign_in().get(SESSIONS).status_code == 403
    both = new_tenant_admin(tenant, "sessions:read", "endusers:read").sign_in()
    assert person.email in both.get(SESSIONS, q="secretname").content.decode()


def test_admin_sessions_require_sessions_read(tenant: TestTenant) -> None:
    boss = new_tenant_admin(tenant)
    boss.browser.defaults["HTTP_USER_AGENT"] = "BossBrowser/7"
    boss.sign_in()
    page = f"{ADMINS}{boss.id}/change/"
    assert "BossBrowser 7" not in new_tenant_admin(tenant, "admins:read").sign_in().get(page).content.decode()
    assert (
        "BossBrowser 7" in new_tenant_admin(tenant, "admins:read", "sessions:read").sign_in().get(page).content.decode()
    )


def test_tenant_admin_does_not_see_operators(tenant: TestTenant) -> None:
    operator = new_operator().sign_in()
    changed = {"name": "Renamed", "slug": tenant.slug, "issuer_name": "x"}
    assert operator.post(f"{LIST}{tenant.id}/settings/", changed).status_code == 302
    auditor = new_auditor(tenant).sign_in()
    for path in ("/admin/", f"{LIST}{tenant.id}/change/"):
        shown = auditor.get(path).content.decode()
        assert ("Tenant changed" in shown, operator.username in shown) == (True, False)
    assert operator.username in operator.get(f"{LIST}{tenant.id}/change/").content.decode()


def test_database_reasons_are_shown_to_operators_only(tenant: TestTenant) -> None:
    TenantDatabase.objects.filter(pk=tenant.id).update(reason="host 10.0.0.7 is full")
    TenantFigures.objects.update_or_create(tenant_id=tenant.id, defaults={"failure": "port 5432 refused"})
    page = f"{LIST}{tenant.id}/change/"
    shown = new_tenant_admin(tenant, "groups:read").sign_in().get(page).content.decode()
    assert ("10.0.0.7" in shown, "port 5432" in shown) == (False, False)
    shown = new_operator().sign_in().get(page).content.decode()
    assert ("10.0.0.7" in shown, "port 5432" in shown) == (True, True)
    TenantDatabase.objects.filter(pk=tenant.id).update(reason="")
    TenantFigures.objects.filter(pk=tenant.id).delete()


def test_provisioning_requires_right_to_create_admin(tenant: TestTenant) -> None:
    weak = new_operator("tenants:read", "tenants:write").sign_in()
    asked = provision_form()
    assert weak.get(f"{LIST}provision/").status_code == 403
    assert weak.post(f"{LIST}provision/", asked).status_code == 403
    half = new_operator("tenants:read", "tenants:write", "admins:write").sign_in()
    assert half.post(f"{LIST}provision/", asked).status_code == 403
    job = Job.objects.create(kind="provision", params=asked, state="failed")
    assert weak.post(f"/admin/console/job/{job.pk}/again/").status_code == 403
    assert not AdminUser.objects.filter(username=asked["username"]).exists()


def test_role_changes_require_step_up_on_every_page(tenant: TestTenant) -> None:
    person = tenant.register()
    admin, operator = new_tenant_admin(tenant).sign_in(), new_operator().sign_in()
    form = {"form_tenant_id": str(tenant.id)}
    name = f"clerks-{secrets.token_hex(4)}"
    assert admin.post("/admin/inside/roles/new/", {**form, "name": name, "permissions": "bills:pay"}).status_code == 302
    with in_tenant(tenant.id):
        role = Role.objects.get(name=name)
    job = Job.objects.create(kind="delete", tenant_id=tenant.id, params={"slug": "x"}, state="failed")
    for one in (admin, operator):
        one.time_passes(20)
    evil = {"name": "N", "slug": tenant.slug, "password_reset_url": "https://evil.example/reset"}
    asked = [
        admin.post(f"/admin/inside/roles/{role.pk}/members/?q={person.email}", {**form, "chosen": [str(person.id)]}),
        admin.post(f"/admin/inside/people/{person.id}/groups/", {**form, "chosen": []}),
        operator.post(f"{LIST}{tenant.id}/settings/", evil),
        operator.post(f"/admin/console/job/{job.pk}/again/"),
    ]
    assert {response.headers["Location"].partition("?")[0] for response in asked} == {"/admin/reauthenticate/"}
    with in_tenant(tenant.id):
        assert not RoleBinding.objects.filter(role=role).exists()
    assert "password_reset_url" not in Tenant.objects.get(pk=tenant.id).settings


@pytest.mark.parametrize("place", ["service", "person", "secret"])
def test_json_fields_reject_what_the_api_rejects(new_world: Callable[[], TestTenant], place: str) -> None:
    tenant = new_world()
    ids = add_rows(tenant)
    operator = new_operator().sign_in().choose(tenant)
    form = {"form_tenant_id": str(tenant.id)}
    service = {**form, "name": "n", "type": "t", "base_url": "https://x.example.com", "status": "active"}
    for odd in ODD_JSON:
        path, body = {
            "service": ("/admin/registry/service/add/", {**service, "metadata": odd}),
            "person": (
                f"/admin/inside/people/{ids['person']}/edit/",
                {**form, "email": "n@example.com", "metadata": odd},
            ),
            "secret": (
                f"/admin/registry/service/{ids['service']}/credentials/add/",
                {**form, "name": "c", "type": "custom", "secret": odd, "is_object": "on"},
            ),
        }[place]
        assert operator.post(path, body).status_code == 400, odd
