"""Change the caller's own password."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail as django_mail

from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin
from userflow.mail_delivery import background

PATH = "/authmgr/profile/password"
NEW = "another horse 8 battery"


def body(**members: Any) -> dict[str, Any]:
    return {"current_password": PASSWORD, "new_password": NEW, **members}


def test_change_ends_all_other_sessions(tenant: TestTenant) -> None:
    person = tenant.register()
    here, there = tenant.as_user(person), tenant.as_user(person)
    response = here.post(PATH, body())
    assert (response.status_code, response.json()["sessions_ended"]) == (200, 1)
    assert here.get("/authmgr/profile").status_code == 200
    assert there.get("/authmgr/profile").status_code == 401
    login = {"client_id": str(tenant.client_id), "email": person.email}
    assert Api().post("/uflow/auth/enduser/login", {**login, "password": PASSWORD}).status_code == 401
    assert Api().post("/uflow/auth/enduser/login", {**login, "password": NEW}).status_code == 200
    assert background.settle()
    assert [sent.subject for sent in django_mail.outbox if sent.to == [person.email]][-1].endswith("has changed")


def test_admin_changes_own_password(new_tenant: Any) -> None:
    own = new_tenant()
    assert own.api.post(PATH, body()).status_code == 200
    assert sign_in_admin(own.admin.username, NEW)["access_token"]


def test_change_counts_wrong_current_password(tenant: TestTenant) -> None:
    api = tenant.as_user(tenant.register())
    statuses = [api.post(PATH, body(current_password="wrong horse 9 battery")).status_code for _ in range(6)]
    assert statuses == [400] * 5 + [429]
    locked = api.post(PATH, body())
    assert locked.status_code == 429
    assert int(locked.headers["Retry-After"]) <= 61


def test_login_lock_does_not_block_password_change(tenant: TestTenant) -> None:
    person = tenant.register()
    api = tenant.as_user(person)
    for _ in range(6):
        guess = {"client_id": str(tenant.client_id), "email": person.email, "password": "wrong horse 9 battery"}
        Api().post("/uflow/auth/enduser/login", guess)
    assert api.post(PATH, body()).status_code == 200


@pytest.mark.parametrize("weak", ["short", "p" * 129, "password123", "Some One"])
def test_change_rejects_weak_password(tenant: TestTenant, weak: str) -> None:
    response = tenant.as_user(tenant.register()).post(PATH, body(new_password=weak))
    assert (response.status_code, list(response.json()["details"])) == (400, ["new_password"])


@pytest.mark.parametrize("missing", ["current_password", "new_password"])
def test_change_requires_both_fields(tenant: TestTenant, missing: str) -> None:
    sent = {name: value for name, value in body().items() if name != missing}
    response = tenant.as_user(tenant.register()).post(PATH, sent)
    assert (response.status_code, list(response.json()["details"])) == (400, [missing])


def test_changes_require_a_token(api: Api) -> None:
    assert api.post(PATH, body()).status_code == 401


@pytest.mark.usefixtures("unreachable_mail_server")
def test_change_succeeds_without_mail_server(tenant: TestTenant) -> None:
    person = tenant.register()
    assert tenant.as_user(person).post(PATH, body()).status_code == 200
    forgot = Api().post(
        "/uflow/auth/enduser/password/forgot", {"email": person.email, "client_id": str(tenant.client_id)}
    )
    assert forgot.status_code == 200
    assert background.settle()


def test_change_has_constant_statement_count(new_tenant: Callable[[], TestTenant]) -> None:
    # In a tenant without webhooks; an endpoint adds one statement.
    tenant = new_tenant()
    api = tenant.as_user(tenant.register())
    with capture_statements() as seen:
        assert api.post(PATH, body()).status_code == 200
    # One of them reads when the session was last verified: the password must be older. One ends the enrollment of sign-ins, of
    # the session that stays too.
    assert seen.counts == (0, 16)
