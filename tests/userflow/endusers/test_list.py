"""The list of end users in its three forms."""

import contextlib
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant, tenant_atomic
from tests.copies import change_mapping, create_client
from tests.parallel import run_concurrently
from tests.world import Api, TestTenant, User, capture_statements
from userflow.accounts.models import EndUser
from userflow.endusers import list_reads

GET, ADMIN = "/uflow/user/enduser/list", "/uflow/admin/enduser/list"


@pytest.fixture(scope="module")
def village(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """Return a tenant with 25 users, five of them deactivated."""
    from tests.world import build_tenant

    with django_db_blocker.unblock():
        village = build_tenant("village")
        for number in range(25):
            person = village.register(f"v{number:02}_x@example.com", name=f"Villager {number}%")
            if number % 5 == 0:
                path = f"/uflow/user/enduser/{village.id}/{person.id}/status"
                assert village.api.put(path, {"active": False}).status_code == 200
        return village


def listed(village: TestTenant, **query: Any) -> dict[str, Any]:
    response = village.api.get(GET, {"tenant_id": str(village.id), **query})
    assert response.status_code == 200, response.content
    return dict(response.json())


def test_default_page_is_ten_newest_first(village: TestTenant) -> None:
    page = listed(village)
    assert {k: page[k] for k in ("page", "limit", "total", "total_pages")} == {
        "page": 1,
        "limit": 10,
        "total": 25,
        "total_pages": 3,
    }
    assert [user["email"] for user in page["users"]][:2] == ["v24_x@example.com", "v23_x@example.com"]
    assert set(page["users"][0]) == {
        "id",
        "email",
        "name",
        "active",
        "provider",
        "client_id",
        "created_at",
        "last_login",
    }
    assert page["users"][0]["created_at"].endswith("Z")


def test_pages_follow_each_other_and_end_empty(village: TestTenant) -> None:
    emails = [user["email"] for page in (1, 2, 3) for user in listed(village, page=page)["users"]]
    assert len(set(emails)) == 25
    for page in (4, 10**6, 2**63 - 1, 10**20):
        past = listed(village, page=page)
        assert (past["users"], past["total"], past["total_pages"]) == ([], 25, 3)


def test_limit_is_capped_at_100(village: TestTenant) -> None:
    assert listed(village, limit=101)["limit"] == 100
    for limit in (10**9, 10**20):
        assert listed(village, limit=limit)["limit"] == 100


@pytest.mark.parametrize("query", [{"page": "0"}, {"page": "-1"}, {"limit": "0"}, {"page": "1.5"}, {"page": "x"}])
@pytest.mark.parametrize("more", [{"limit": "１２"}, {"active": "maybe"}, {"client_id": "x"}, {}])
def test_invalid_query_is_400(village: TestTenant, query: dict[str, str], more: dict[str, str]) -> None:
    response = village.api.get(GET, {"tenant_id": str(village.id), **query, **more})
    assert response.status_code == 400
    assert set(query) <= set(response.json()["details"])


def test_filters_apply_to_rows_and_totals(village: TestTenant) -> None:
    assert listed(village, active="false")["total"] == 5
    assert listed(village, active="true")["total"] == 20
    assert listed(village, email="V0")["total"] == 10
    assert listed(village, name="villager 7%")["total"] == 1
    assert listed(village, name="lager", email="v1", active="true", provider="LOCAL")["total"] == 8
    assert listed(village, provider="google")["total"] == listed(village, provider="loc")["total"] == 0
    assert listed(village, active="TRUE")["total"] == listed(village, active="1")["total"] == 20
    assert listed(village, active="False")["total"] == listed(village, active="0")["total"] == 5
    assert listed(village, client_id=str(village.client_id))["total"] == 25
    assert listed(village, client_id=str(village.id))["total"] == 0


def test_filter_matches_percent_and_underscore_literally(village: TestTenant) -> None:
    assert listed(village, email="0_x")["total"] == 3
    assert listed(village, email="0%x")["total"] == 0
    assert listed(village, email="v_0")["total"] == 0
    assert listed(village, name="\\")["total"] == 0


def test_all_three_forms_return_the_same(village: TestTenant) -> None:
    asked = {"tenant_id": str(village.id), "page": 2, "limit": 7}
    forms = [
        village.api.get(GET, asked),
        village.api.post(GET, asked),
        village.api.post(ADMIN, asked),
    ]
    assert len({form.content for form in forms}) == 1


def test_body_form_requires_json_types(village: TestTenant) -> None:
    for wrong in ({"page": "1"}, {"page": True}, {"active": "true"}, {"limit": 1.0}, {"email": 5}):
        response = village.api.post(GET, {"tenant_id": str(village.id), **wrong})
        assert response.status_code == 400, wrong
        assert set(response.json()["details"]) == set(wrong)


def test_admin_list_finds_users_by_address_and_name(village: TestTenant, other_tenant: TestTenant) -> None:
    other_tenant.register("v07_x@example.com", name="Villager 7%")
    asked = {"tenant_id": str(village.id), "limit": 100}
    for filters in ({"email": "V0"}, {"name": "LAGER 7%"}, {"email": "v1", "name": "lager", "provider": "Local"}):
        response = village.api.post(ADMIN, {**asked, **filters})
        assert response.content == village.api.get(GET, {**asked, **filters}).content
        assert response.json()["total"] > 0
    assert village.api.post(ADMIN, {**asked, "email": "no such user"}).json()["total"] == 0
    assert village.api.post(ADMIN, {**asked, "name": 5}).status_code == 400
    assert other_tenant.api.post(ADMIN, {**asked, "email": "v0"}).status_code == 403


def test_address_with_an_international_domain_is_found_in_both_forms(tenant: TestTenant) -> None:
    local = f"ann-{uuid4().hex[:8]}"
    tenant.register(f"{local}@m\u00fcnchen.example")
    for words in (f"{local}@M\u00fcnchen.example", f"{local}@xn--mnchen-3ya.example", f"{local}@m\u00fcnchen"):
        found = listed(tenant, email=words)
        assert [user["email"] for user in found["users"]] == [f"{local}@xn--mnchen-3ya.example"], words


def test_project_filters_by_the_users_client(tenant: TestTenant) -> None:
    client = create_client(
        tenant_id=tenant.id, name="p", project_id=f"project-{secrets.token_hex(3)}", self_registration=True
    )
    tenant.register(client_id=str(client.pk))
    asked = {"tenant_id": str(tenant.id), "project_id": client.project_id}
    assert tenant.api.post(ADMIN, asked).json()["total"] == 1
    assert tenant.api.post(ADMIN, {**asked, "project_id": "none"}).json()["total"] == 0
    client.delete()


def test_list_requires_endusers_read(api: Api, operator: Api, village: TestTenant, other_tenant: TestTenant) -> None:
    asked = {"tenant_id": str(village.id)}
    assert api.get(GET, asked).status_code == 401
    assert other_tenant.api.get(GET, asked).status_code == 403
    # One of the existing users: each test may be the first to count them.
    assert village.as_user(User(village.id, "v01_x@example.com")).get(GET, asked).status_code == 403
    assert operator.get(GET, asked).status_code == 200
    assert operator.get(GET, {"tenant_id": "00000000-0000-4000-8000-000000000000"}).status_code == 404
    assert village.api.get(GET).status_code == 400


def test_foreign_and_unknown_tenant_get_the_same_403(village: TestTenant, other_tenant: TestTenant) -> None:
    nowhere = village.api.get(GET, {"tenant_id": "00000000-0000-4000-8000-000000000000"})
    foreign = village.api.get(GET, {"tenant_id": str(other_tenant.id)})
    assert (nowhere.status_code, nowhere.content) == (403, foreign.content)


def test_list_needs_two_statements(village: TestTenant) -> None:
    # The first read of an hour is also audited.
    listed(village)
    with capture_statements() as seen:
        listed(village)
    assert seen.counts == (1, 1)


def ids(tenant: TestTenant, person: User) -> dict[str, str]:
    return {"tenant_id": str(tenant.id), "user_id": str(person.id)}


def test_times_are_utc_and_names_stay_unchanged(new_tenant: Any) -> None:
    own = new_tenant()
    names = ['2026-01-01T00:00:00+00:00","last_login":', '+00:00"}', '+00:00\\"}', '+00:00","last_login":null}']
    made = [own.register(name=name) for name in names]
    own.sign_in(made[0])
    found = {user["id"]: user for user in listed(own)["users"]}
    assert [found[str(person.id)]["name"] for person in made] == names
    for person in made:
        shown = found[str(person.id)]
        alone = own.api.get(f"/uflow/user/enduser/{own.id}/{person.id}").json()
        for member in ("created_at", "last_login"):
            assert (shown[member] is None) == (person is not made[0] and member == "last_login")
            if shown[member] is not None:
                assert shown[member].endswith("Z")
                assert datetime.fromisoformat(shown[member]) == datetime.fromisoformat(alone[member])


def people(tenant: TestTenant, number: int) -> list[EndUser]:
    marks = [secrets.token_hex(8) for _ in range(number)]
    return [EndUser(email=f"{m}@example.com", email_key=f"{m}@example.com", client_id=tenant.client_id) for m in marks]


def test_total_follows_bulk_changes_and_rollbacks(new_tenant: Any) -> None:
    own = new_tenant()
    with in_tenant(own.id):
        made = EndUser.objects.bulk_create(people(own, 30))
        with contextlib.suppress(ZeroDivisionError), tenant_atomic():
            EndUser.objects.bulk_create(people(own, 5))
            raise ZeroDivisionError
        EndUser.objects.bulk_create([made[0], *people(own, 2)], ignore_conflicts=True)
        EndUser.objects.filter(pk__in=[user.pk for user in made[:12]]).delete()
    assert listed(own)["total"] == len(listed(own, limit=100)["users"]) == 20


def agree(tenant: TestTenant, **filters: Any) -> bool:
    with in_tenant(tenant.id):
        stored = EndUser.objects.filter(**filters).count()
    found = listed(tenant, limit=100, **{name: str(value).lower() for name, value in filters.items()})
    return stored == found["total"] == len(found["users"])


def test_totals_by_filter_follow_every_change(new_tenant: Any) -> None:
    own = new_tenant()
    elsewhere = uuid4()
    with in_tenant(own.id):
        made = EndUser.objects.bulk_create(people(own, 30))
        chosen = EndUser.objects.filter(pk__in=[user.pk for user in made[:20]])
        chosen.update(active=False)
        EndUser.objects.filter(pk__in=[user.pk for user in made[10:25]]).update(provider="google", active=True)
        EndUser.objects.filter(pk__in=[user.pk for user in made[5:15]]).update(client_id=elsewhere)
        EndUser.objects.filter(pk=made[0].pk).update(client_id=None)
        EndUser.objects.filter(pk__in=[user.pk for user in made[12:14]]).delete()
        with contextlib.suppress(ZeroDivisionError), tenant_atomic():
            chosen.update(active=True, provider="undone")
            raise ZeroDivisionError
    assert agree(own, active=False)
    assert agree(own, active=True, provider="google")
    assert agree(own, client_id=elsewhere)
    assert agree(own, client_id=own.client_id, provider="local", active=False)
    assert agree(own, provider="undone")
    assert listed(own, provider="o", limit=100)["total"] == 0
    by_google = listed(own, provider="google")["total"]
    with in_tenant(own.id):
        EndUser.objects.filter(pk=made[20].pk, provider="google").update(provider="Google")
    assert listed(own, provider="GOOGLE")["total"] == by_google


def test_concurrent_activity_changes_are_all_counted(new_tenant: Any) -> None:
    own = new_tenant()
    everybody = [own.register() for _ in range(4)]

    def switch(number: int) -> None:
        path = f"/uflow/user/enduser/{own.id}/{everybody[number % 4].id}/status"
        own.api.put(path, {"active": number % 3 == 0})
        connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(switch, range(24)))
    assert agree(own, active=True)
    assert agree(own, active=False)


MANY = """
INSERT INTO userflow_enduser (id, email, email_key, name, active, provider, client_id, password, metadata, mfa_methods,
    created_at, updated_at)
SELECT gen_random_uuid(), i || '@x.example', i || '@x.example', '', i % 8 <> 0, 'local', %s, '', '{}', '[]',
    now() - (i / 3) * interval '1 second', now() FROM generate_series(1, 5001) i
"""


def test_far_pages_are_correct_from_both_ends(new_tenant: Any) -> None:
    own = new_tenant()
    with in_tenant(own.id):
        with connections["tenant"].cursor() as cursor:
            cursor.execute(MANY.replace("i % 8", "i %% 8"), [own.client_id])
        newest = EndUser.objects.order_by("-created_at", "-id")
        everybody = [str(user) for user in newest.values_list("id", flat=True)]
        active = [str(user) for user in newest.filter(active=True).values_list("id", flat=True)]
    for page in (20, 21, 25, 26, 50, 51):
        found = listed(own, page=page, limit=100)
        assert [user["id"] for user in found["users"]] == everybody[page * 100 - 100 : page * 100]
        assert found["total"] == 5001
        found = listed(own, page=page, limit=97, active="true")
        assert [user["id"] for user in found["users"]] == active[page * 97 - 97 : page * 97]
    assert listed(own, page=52, limit=100)["users"] == []
    assert len(listed(own, page=51, limit=100)["users"]) == 1
    with capture_statements() as seen:
        listed(own, page=26, limit=100)
    assert seen.counts == (1, 2)
    listed(own, provider="LOCAL")
    with capture_statements() as seen:
        listed(own, provider="LOCAL")
    assert seen.counts == (1, 2)


def reads(tenant: TestTenant, actor: User) -> list[dict[str, Any]]:
    """Return the details of an admin's audited list reads, oldest first."""
    with in_tenant(tenant.id):
        rows = TenantEvent.objects.filter(action="end_user.listed", actor_id=str(actor.id))
        return list(rows.order_by("id").values_list("details", flat=True))


def test_list_read_is_audited_once_an_hour_per_filter(new_tenant: Any) -> None:
    own = new_tenant()
    body = {"tenant_id": str(own.id)}
    for page in (1, 2, 1):
        listed(own, page=page, limit=5)
        assert own.api.post(GET, {**body, "page": page}).status_code == 200
        assert own.api.post(ADMIN, body).status_code == 200
    assert reads(own, own.admin) == [{"filters": []}]
    for address in ("ann@example.com", "ann@example.com", "ben@example.com"):
        listed(own, email=address, active="true")
    assert reads(own, own.admin)[1:] == [{"filters": ["active", "email"]}] * 2


def test_list_read_is_audited_per_caller(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    listed(own)
    assert operator.get(GET, {"tenant_id": str(own.id)}).status_code == 200
    with in_tenant(own.id):
        kinds = TenantEvent.objects.filter(action="end_user.listed").values_list("actor_kind", flat=True)
        assert sorted(kinds) == ["admin", "operator"]


def test_another_process_does_not_record_a_read_again(new_tenant: Any) -> None:
    own = new_tenant()
    listed(own)
    list_reads.forget()
    with capture_statements() as seen:
        listed(own)
    assert seen.counts == (1, 1)
    assert len(reads(own, own.admin)) == 1


def test_parallel_reads_leave_one_event(new_tenant: Any) -> None:
    own = new_tenant()
    responses = run_concurrently([lambda: Api(token=own.api.token).get(GET, {"tenant_id": str(own.id)})] * 8)
    assert [response.status_code for response in responses] == [200] * 8
    assert len(reads(own, own.admin)) == 1


@pytest.mark.parametrize("state", ["moving", "migrating"])
def test_list_works_while_tenant_is_read_only(new_tenant: Any, state: str) -> None:
    own = new_tenant()
    change_mapping(own.id, status=state)
    listed(own)
    change_mapping(own.id, status="active")
    assert reads(own, own.admin) == []
    listed(own)
    assert len(reads(own, own.admin)) == 1


def test_running_import_does_not_block_registration(new_tenant: Any) -> None:
    own = new_tenant()
    stored, may_end = threading.Event(), threading.Event()

    def bring_in() -> None:
        with in_tenant(own.id), tenant_atomic():
            EndUser.objects.bulk_create(people(own, 40))
            stored.set()
            may_end.wait(60)
        connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(bring_in)
        assert stored.wait(60)
        # A blocked statement would be cancelled after two seconds.
        for _ in range(3):
            own.register()
        meanwhile = listed(own)["total"]
        may_end.set()
        going_on.result(60)
    assert (meanwhile, listed(own)["total"]) == (3, 43)


@pytest.mark.quiet_machine
def test_concurrent_registrations_and_erasures_are_counted(new_tenant: Any) -> None:
    own = new_tenant()
    leaving = [own.register() for _ in range(6)]

    def erase_or_register(number: int) -> None:
        if number < 6:
            own.api.call("POST", "/uflow/user/enduser/delete_all", ids(own, leaving[number]))
        else:
            own.register()
        connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(erase_or_register, range(20)))
    with in_tenant(own.id):
        assert EndUser.objects.count() == 14
    assert listed(own)["total"] == 14
