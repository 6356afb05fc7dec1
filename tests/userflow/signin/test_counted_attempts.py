"""The commit of a counted attempt does not wait for the disk; every other commit does."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.db import connections

from tenants.entering.context import in_tenant, tenant_atomic
from tests.world import PASSWORD, Api, TestTenant, capture_statements
from userflow.accounts.realms import END_USERS
from userflow.credentials import attempts

WAITS_NOT = "set_config('synchronous_commit', 'off', true)"


@pytest.fixture
def inside(tenant: TestTenant) -> Iterator[None]:
    """Inside the tenant, whose commits wait for the disk."""
    with in_tenant(tenant.id), connections["tenant"].cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        yield
        cursor.execute("RESET synchronous_commit")


def setting() -> str:
    with connections["tenant"].cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        return str(cursor.fetchone()[0])


def test_next_commit_waits_again(inside: None) -> None:
    attempts.count(END_USERS, uuid4(), factor=attempts.PASSWORD)
    assert setting() == "on"


def test_commit_of_a_surrounding_transaction_waits(inside: None) -> None:
    with tenant_atomic():
        attempts.count(END_USERS, uuid4(), factor=attempts.PASSWORD)
        assert setting() == "on"


def test_only_the_count_of_a_sign_in_does_not_wait(tenant: TestTenant) -> None:
    person = tenant.register()
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": PASSWORD}
    with capture_statements() as seen:
        assert Api().post("/uflow/auth/enduser/login", body).status_code == 200
    assert [WAITS_NOT in sql for sql in (*seen.default, *seen.tenant)].count(True) == 1
    assert WAITS_NOT in seen.tenant[1]
