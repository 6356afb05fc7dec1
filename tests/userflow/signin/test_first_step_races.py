"""A login gets nothing when the password is replaced or the user deactivated while it runs."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, new_user
from tests.world import PASSWORD, Api, TestTenant, capture_statements
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.realms import ADMINS, END_USERS, Realm

CHANGES = {"another password": {"password": "argon2$another"}, "deactivated": {"active": False}}
# Another session waits for the end of this transaction.
WAITED_FOR = "SELECT count(*) FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"


@pytest.fixture
def strict(new_tenant: Callable[..., TestTenant], operator: Api) -> TestTenant:
    """A tenant whose people and admins need a second factor."""
    tenant = new_tenant()
    asked = {"settings": {"mfa_policy": "required"}}
    assert operator.patch(f"/uflow/admin/tenants/{tenant.id}", asked).status_code == 200
    return tenant


def signed_in_during(realm: Realm, change: Callable[[], Any], sign_in: Callable[[], Any]) -> Any:
    """The answer of a sign-in that reads the user before a change is committed and would write after it."""

    def run() -> Any:
        try:
            return sign_in()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with realm.atomic(), connections[realm.alias].cursor() as cursor:
            change()
            response = pool.submit(run)
            deadline = time.monotonic() + 60
            while not response.done() and time.monotonic() < deadline:
                cursor.execute(WAITED_FOR)
                if cursor.fetchone()[0]:
                    break
                time.sleep(0.02)
        return response.result()


def end_user_during(person: TestUser, change: dict[str, Any]) -> Any:
    body = {"client_id": str(person.tenant.client_id), "email": person.email, "password": PASSWORD}
    with in_tenant(person.tenant.id):
        return signed_in_during(
            END_USERS,
            lambda: EndUser.objects.filter(pk=person.id).update(**change),
            lambda: Api().post("/uflow/auth/enduser/login", body),
        )


@pytest.mark.parametrize("change", CHANGES)
def test_login_during_change_gets_no_second_step(tenant: TestTenant, change: str) -> None:
    ann = new_user(tenant).enrol_totp()
    response = end_user_during(ann, CHANGES[change])
    assert (response.status_code, response.json().get("mfa_token")) == (401, None)
    with in_tenant(tenant.id):
        assert not ann.row().tickets.filter(purpose="second_step").exists()


@pytest.mark.parametrize("change", CHANGES)
def test_login_during_change_gets_no_enrollment_ticket(strict: TestTenant, change: str) -> None:
    ann = new_user(strict)
    ann.minutes_pass(60)
    response = end_user_during(ann, CHANGES[change])
    assert (response.status_code, response.headers.get("X-Enrollment-Ticket")) == (401, None)
    with in_tenant(strict.id):
        assert not ann.row().tickets.filter(expires_at__gt=now()).exists()


@pytest.mark.parametrize("change", CHANGES)
def test_admin_login_during_change_gets_no_ticket(strict: TestTenant, change: str) -> None:
    body = {"username": strict.admin.username, "password": PASSWORD}
    response = signed_in_during(
        ADMINS,
        lambda: AdminUser.objects.filter(pk=strict.admin.id).update(**CHANGES[change]),
        lambda: Api().post("/uflow/admin/auth/login", body),
    )
    assert (response.status_code, response.headers.get("X-Enrollment-Ticket")) == (401, None)


@pytest.mark.parametrize("fixture", ["tenant", "strict"])
def test_login_during_first_enrollment_is_rejected(fixture: str, request: pytest.FixtureRequest) -> None:
    # A session, ticket or window that it opened would come after the end of all others.
    ann = new_user(request.getfixturevalue(fixture))
    ann.minutes_pass(60)
    response = end_user_during(ann, {"mfa_methods": ["totp"]})
    assert (response.status_code, response.headers.get("X-Enrollment-Ticket")) == (401, None)
    with in_tenant(ann.tenant.id):
        assert not ann.row().sessions.filter(ended_at=None).exists()
        assert not ann.row().tickets.filter(expires_at__gt=now()).exists()


def test_admin_login_during_first_enrollment_is_rejected(new_tenant: Callable[..., TestTenant]) -> None:
    admin = new_tenant().admin
    response = signed_in_during(
        ADMINS,
        lambda: AdminUser.objects.filter(pk=admin.id).update(mfa_methods=["totp"]),
        lambda: Api().post("/uflow/admin/auth/login", {"username": admin.username, "password": PASSWORD}),
    )
    assert (response.status_code, response.headers.get("X-Enrollment-Ticket")) == (401, None)


def test_first_step_statement_counts(strict: TestTenant, new_tenant: Callable[..., TestTenant]) -> None:
    # Of a tenant of the test's own: the first one in a minute also notes that the client is in use.
    tenant = new_tenant()
    for person, most in ((new_user(tenant).enrol_totp(), 5), (new_user(strict), 9)):
        person.sign_in()
        with capture_statements() as seen:
            person.sign_in()
        # Read the client; find the user and count the attempt; then, in one transaction, lock the user, clear the attempts,
        # issue the ticket (without a factor also close other windows, also of sessions, open one, issue the enrollment
        # ticket) and audit it.
        assert seen.counts == (0, most + 1)
        assert "FOR NO KEY UPDATE" in seen.tenant[2]
