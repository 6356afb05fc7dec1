"""The users of a role and of a group, page by page: by number and by cursor."""

from typing import Any

import pytest
from django.db import connections

from tenants.entering.context import in_tenant
from tests.world import TestTenant, build_tenant, capture_statements

PEOPLE = """
INSERT INTO userflow_enduser (id, email, email_key, name, active, provider, password, metadata, mfa_methods, created_at,
    updated_at)
SELECT gen_random_uuid(), i || '@x.example', i || '@x.example', '', true, 'local', '', '{}', '[]', now(), now()
FROM generate_series(1, 2100) i
"""
# Three have the same time, so that their own ids decide.
BOUND = """
INSERT INTO {table} ({column}_id, user_id, created_at)
SELECT %s, id, now() - ((row_number() OVER ())::integer / 3) * interval '1 second' FROM userflow_enduser
WHERE email LIKE '%%@x.example'
"""


@pytest.fixture(scope="module")
def crowd(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """Return a tenant with 2,100 users, whose admin can read their roles and groups."""
    with django_db_blocker.unblock():
        crowd = build_tenant("members")
        with in_tenant(crowd.id), connections["tenant"].cursor() as cursor:
            cursor.execute(PEOPLE)
        return crowd


@pytest.fixture(scope="module", params=["groups", "roles"])
def path(request: pytest.FixtureRequest, crowd: TestTenant, django_db_blocker: Any) -> str:
    """Return the path of the members of a group and of a role of all these users."""
    kind = request.param
    with django_db_blocker.unblock():
        holder = crowd.api.post(f"/authmgr/{kind}", {"name": "all"}).json()["id"]
        table, column = {
            "groups": ("userflow_groupmembership", "group"),
            "roles": ("userflow_rolebinding", "role"),
        }[kind]
        with in_tenant(crowd.id), connections["tenant"].cursor() as cursor:
            cursor.execute(BOUND.format(table=table, column=column), [holder])
    return f"/authmgr/{kind}/{holder}/{'users' if kind == 'groups' else 'bindings'}"


def listed(crowd: TestTenant, path: str, **query: Any) -> dict[str, Any]:
    response = crowd.api.get(path, query)
    assert response.status_code == 200, response.content
    return dict(response.json())


def test_cursors_visit_the_pages_of_members(crowd: TestTenant, path: str) -> None:
    by_cursor = [listed(crowd, path, limit=100)]
    while by_cursor[-1]["next_cursor"] is not None:
        by_cursor.append(listed(crowd, path, limit=100, cursor=by_cursor[-1]["next_cursor"]))
    by_number = [listed(crowd, path, limit=100, page=number) for number in range(1, 22)]
    assert by_cursor == [
        page | {"next_cursor": mark["next_cursor"]} for page, mark in zip(by_number, by_cursor, strict=True)
    ]
    assert by_number[-1]["next_cursor"] is None
    assert len({user["id"] for page in by_cursor for user in page["users"]}) == 2100
    since = [user["since"] for page in by_cursor for user in page["users"]]
    assert since == sorted(since, reverse=True)
    assert listed(crowd, path, limit=100, page=22)["users"] == []
    assert listed(crowd, path, limit=7, page=10**20)["total"] == 2100


def test_pages_of_members_need_few_statements(crowd: TestTenant, path: str) -> None:
    page = listed(crowd, path, limit=100)
    for query, statements in (({}, 3), ({"page": 15}, 4), ({"cursor": page["next_cursor"]}, 3), ({"page": 22}, 2)):
        with capture_statements() as seen:
            listed(crowd, path, limit=100, **query)
        assert seen.counts == (1, statements), query


def test_cursor_of_another_list_of_members_is_400(crowd: TestTenant, path: str) -> None:
    kind = path.split("/")[2]
    other = crowd.api.post(f"/authmgr/{kind}", {"name": f"none {path[-8:]}"}).json()["id"]
    cursor = listed(crowd, path)["next_cursor"]
    for wrong in (path.replace(path.split("/")[3], other), f"{path}?limit=7"):
        text = cursor if wrong != f"{path}?limit=7" else cursor[:-2]
        response = crowd.api.get(wrong, {"cursor": text})
        assert (response.status_code, response.json()["code"]) == (400, "cursor_invalid")
    response = crowd.api.get(path, {"cursor": cursor, "page": 1})
    assert (response.status_code, response.json()["code"]) == (400, "validation_failed")
