"""The list of end users continued by cursor."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from tenants.entering.context import in_tenant
from tests.world import TestTenant, build_tenant, capture_statements
from userflow.accounts.models import EndUser

GET, ADMIN = "/uflow/user/enduser/list", "/uflow/admin/enduser/list"
# Three users share a time, so that ids decide.
SOME = """
INSERT INTO userflow_enduser (id, email, email_key, name, active, provider, client_id, password, metadata, mfa_methods,
    created_at, updated_at)
SELECT gen_random_uuid(), mark, mark, 'Walker ' || i, i %% 4 <> 0, CASE WHEN i %% 5 = 0 THEN 'google' ELSE 'local' END, %s,
    '', '{}', '[]', now() - (i / 3) * interval '1 second', now()
FROM generate_series(1, %s) i, LATERAL (SELECT i || %s || '@example.com' AS mark) marks
"""


def add(tenant: TestTenant, number: int) -> None:
    with in_tenant(tenant.id), connections["tenant"].cursor() as cursor:
        cursor.execute(SOME, [tenant.client_id, number, secrets.token_hex(4)])


@pytest.fixture(scope="module")
def crowd(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """Return a tenant with 60 users."""
    with django_db_blocker.unblock():
        crowd = build_tenant("crowd")
        add(crowd, 60)
        return crowd


def listed(tenant: TestTenant, **query: Any) -> dict[str, Any]:
    response = tenant.api.get(GET, {"tenant_id": str(tenant.id), **query})
    assert response.status_code == 200, response.content
    return dict(response.json())


def walked(tenant: TestTenant, **query: Any) -> Iterator[dict[str, Any]]:
    page = listed(tenant, **query)
    yield page
    while page["next_cursor"] is not None:
        page = listed(tenant, **query, cursor=page["next_cursor"])
        yield page


def ids(*pages: dict[str, Any]) -> list[str]:
    return [user["id"] for page in pages for user in page["users"]]


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"active": "true"},
        {"provider": "GOOGLE"},
        {"email": "1"},
        {"name": "walker 2", "active": "false"},
        {"name": "unknown"},
    ],
)
def test_cursors_visit_the_pages_of_the_list(crowd: TestTenant, filters: dict[str, str]) -> None:
    pages = list(walked(crowd, limit=7, **filters))
    by_number = [listed(crowd, limit=7, page=number, **filters) for number in range(1, len(pages) + 1)]
    assert [page | {"next_cursor": None} for page in pages] == [page | {"next_cursor": None} for page in by_number]
    assert ids(*pages) == ids(listed(crowd, limit=100, **filters))
    assert len(ids(*pages)) == pages[-1]["total"]


def test_full_last_page_has_no_cursor(crowd: TestTenant) -> None:
    pages = list(walked(crowd, limit=30))
    assert [len(page["users"]) for page in pages] == [30, 30]
    assert listed(crowd, limit=30, page=2)["next_cursor"] is None
    assert listed(crowd, limit=30, page=9)["next_cursor"] is None


def test_page_far_from_both_ends_has_a_cursor(new_tenant: Any) -> None:
    own = new_tenant()
    add(own, 4500)
    far = listed(own, limit=100, page=22)
    assert ids(listed(own, limit=100, cursor=far["next_cursor"])) == ids(listed(own, limit=100, page=23))


def test_all_forms_accept_the_cursor_of_another(crowd: TestTenant) -> None:
    asked = {"tenant_id": str(crowd.id), "limit": 7}
    cursor = crowd.api.post(ADMIN, asked).json()["next_cursor"]
    forms = [
        crowd.api.get(GET, {**asked, "cursor": cursor}),
        crowd.api.post(GET, {**asked, "cursor": cursor}),
        crowd.api.post(ADMIN, {**asked, "cursor": cursor, "page": None}),
    ]
    assert {form.status_code for form in forms} == {200}
    assert len({form.content for form in forms}) == 1


def test_walk_is_stable_while_users_come_and_go(new_tenant: Any) -> None:
    own = new_tenant()
    add(own, 20)
    before = ids(listed(own, limit=100))
    first = listed(own, limit=8)
    own.register()
    with in_tenant(own.id):
        # The user that the cursor names.
        EndUser.objects.filter(pk=before[7]).delete()
    second = listed(own, limit=8, cursor=first["next_cursor"])
    own.register()
    third = listed(own, limit=8, cursor=second["next_cursor"])
    assert ids(first, second, third) == before
    assert [page["page"] for page in (first, second, third)] == [1, 2, 3]
    assert third["total"] == 21
    assert third["next_cursor"] is None


@pytest.mark.parametrize("filters", [{"active": "true"}, {"email": "a"}, {"provider": "local"}])
def test_cursor_of_other_filters_is_400(crowd: TestTenant, filters: dict[str, str]) -> None:
    asked = {"tenant_id": str(crowd.id), "cursor": listed(crowd, limit=7)["next_cursor"]}
    response = crowd.api.get(GET, {**asked, **filters})
    assert (response.status_code, response.json()["code"]) == (400, "cursor_invalid")


def test_cursor_of_another_tenant_is_400(crowd: TestTenant, other_tenant: TestTenant) -> None:
    cursor = listed(crowd, limit=7)["next_cursor"]
    response = other_tenant.api.get(GET, {"tenant_id": str(other_tenant.id), "cursor": cursor})
    assert (response.status_code, response.json()["code"]) == (400, "cursor_invalid")


def test_changed_and_malformed_cursors_are_400(crowd: TestTenant) -> None:
    cursor = listed(crowd, limit=7)["next_cursor"]
    changed = [
        f"{cursor[:at]}{'A' if cursor[at] != 'A' else 'B'}{cursor[at + 1 :]}" for at in range(0, len(cursor) - 1, 7)
    ]
    for wrong in [
        *changed,
        "1",
        "4711",
        cursor[:-1],
        f"{cursor}A",
        f"{cursor}=",
        "A" * 59,
        "é" * 59,
        "%",
        "' OR 1=1 --",
    ]:
        response = crowd.api.get(GET, {"tenant_id": str(crowd.id), "cursor": wrong})
        assert (response.status_code, response.json()["code"]) == (400, "cursor_invalid"), wrong


def test_cursor_of_wrong_type_or_with_page_is_400(crowd: TestTenant) -> None:
    cursor = listed(crowd, limit=7)["next_cursor"]
    body = {"tenant_id": str(crowd.id)}
    responses = [crowd.api.post(GET, {**body, "cursor": wrong}) for wrong in (4711, "", "A" * 101, ["A"])]
    responses += [form(GET, {**body, "cursor": cursor, "page": 1}) for form in (crowd.api.get, crowd.api.post)]
    for response in responses:
        assert (response.status_code, response.json()["code"]) == (400, "validation_failed")
        assert set(response.json()["details"]) == {"cursor"}


def test_page_by_cursor_needs_two_statements_in_the_tenant(crowd: TestTenant) -> None:
    cursor = listed(crowd, limit=7)["next_cursor"]
    with capture_statements() as seen:
        listed(crowd, limit=7, cursor=cursor)
    assert seen.counts == (1, 2)


def test_search_counts_only_what_fills_a_page(crowd: TestTenant) -> None:
    for name, limit, statements in (("walker 59", 7, 1), ("unknown", 7, 1), ("walker", 7, 2)):
        listed(crowd, name=name)
        with capture_statements() as seen:
            listed(crowd, name=name, limit=limit)
        assert seen.counts == (1, statements), name


def test_search_for_what_very_many_have_is_counted_once(new_tenant: Any) -> None:
    own = new_tenant()
    add(own, 10_000)
    assert listed(own, name="walker")["total"] == 10_000
    with capture_statements() as seen:
        page = listed(own, name="walker", page=3)
    assert (page["total"], len(page["users"])) == (10_000, 10)
    assert seen.counts == (1, 1)
