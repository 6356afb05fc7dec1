"""Signing in with a password: answers, limits and what they must not tell."""

import secrets
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.utils.timezone import now

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.copies import create_client
from tests.world import PASSWORD, Api, TestTenant, User, capture_statements
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import EndUserAttempts, EndUserSession

ADMIN, END_USER = "/uflow/admin/auth/login", "/uflow/auth/enduser/login"


def login(tenant: TestTenant, person: User, **members: Any) -> dict[str, Any]:
    return {"client_id": str(tenant.client_id), "email": person.email, "password": PASSWORD, **members}


def test_end_user_login_returns_tokens_and_user(api: Api, tenant: TestTenant) -> None:
    person = tenant.register()
    response = api.post(END_USER, login(tenant, person, tenant_id=str(tenant.id)))
    assert response.status_code == 200
    assert set(response.json()) == {
        "access_token",
        "refresh_token",
        "token_type",
        "expires_in",
        "user",
        "tenant_id",
        "client_id",
        "mfa_required",
    }
    assert response.json()["user"] == {"id": str(person.id), "email": person.email, "name": "Some One"}
    assert response.json()["mfa_required"] is False
    assert response.headers["X-Enrollment-Ticket"]
    assert response.headers["Cache-Control"] == "no-store"


def test_login_errors_do_not_tell_users_apart(api: Api, tenant: TestTenant, other_tenant: TestTenant) -> None:
    person, off = tenant.register(), tenant.register()
    tenant.api.delete(f"/uflow/user/enduser/{tenant.id}/{off.id}")
    closed = create_client(tenant_id=tenant.id, name="closed", active=False, first_party=True)
    tries = [
        login(tenant, person, password="wrong wrong wrong"),
        login(tenant, User(person.id, f"unknown-{person.id}@example.com")),
        login(tenant, off),
        login(tenant, person, client_id=str(closed.pk)),
        login(tenant, person, client_id=str(tenant.id)),
        login(tenant, person, client_id=str(other_tenant.client_id)),
        login(tenant, person, tenant_id=str(other_tenant.id)),
        login(tenant, person, password="x" * 1000),
    ]
    responses = [api.post(END_USER, body) for body in tries]
    assert [response.status_code for response in responses] == [401] * len(tries)
    assert len({response.content for response in responses}) == 1


def test_admin_login_by_name_or_address(api: Api, tenant: TestTenant) -> None:
    for name in (tenant.admin.username, tenant.admin.username.upper(), tenant.admin.email, tenant.admin.email.upper()):
        assert api.post(ADMIN, {"username": name, "password": PASSWORD}).status_code == 200
    wrong = api.post(ADMIN, {"username": tenant.admin.username, "password": "wrong wrong"})
    unknown = api.post(ADMIN, {"username": f"no-such-admin-{uuid4().hex}", "password": PASSWORD})
    assert (wrong.status_code, wrong.content) == (401, unknown.content)


def test_admin_login_by_internationalized_address(tenant: TestTenant) -> None:
    address = f"ines-{secrets.token_hex(4)}@bücher.example"
    body = {"username": address, "email": address, "password": PASSWORD, "first_name": "I", "last_name": "B"}
    made = tenant.api.post("/uflow/admin/users", body)
    assert (made.status_code, made.json()["email"]) == (201, address.replace("bücher", "xn--bcher-kva"))
    renamed = tenant.api.put(f"/uflow/admin/users/{made.json()['id']}", {"username": address.split("@")[0]})
    assert renamed.status_code == 200
    for name in (address, address.upper(), made.json()["email"]):
        assert Api().post(ADMIN, {"username": name, "password": PASSWORD}).status_code == 200, name


@pytest.mark.parametrize(
    "body", [{}, {"username": "x"}, {"password": "x"}, {"username": 5, "password": "x"}, {"username": ""}]
)
def test_login_rejects_missing_fields(api: Api, body: dict[str, Any]) -> None:
    assert api.post(ADMIN, body).status_code == 400
    assert api.post(END_USER, body).status_code == 400


def test_five_wrong_passwords_lock_only_that_account(tenant: TestTenant) -> None:
    person, other = tenant.register(), tenant.register()
    for _ in range(5):
        assert Api().post(END_USER, login(tenant, person, password="wrong wrong")).status_code == 401
    locked = Api().post(END_USER, login(tenant, person))
    assert locked.status_code == 429
    assert 1 <= int(locked.headers["Retry-After"]) <= 61
    assert Api().post(END_USER, login(tenant, other)).status_code == 200


@pytest.mark.parametrize("kind", ["end_user", "admin"])
def test_lock_does_not_apply_to_known_network(new_tenant: Callable[[], TestTenant], kind: str) -> None:
    tenant, home = new_tenant(), Api()
    if kind == "admin":
        path, body = ADMIN, {"username": tenant.admin.username, "password": PASSWORD}
    else:
        path, body = END_USER, login(tenant, tenant.register())
    wrong = {**body, "password": "wrong wrong"}
    assert home.post(path, body).status_code == 200
    assert [Api().post(path, wrong).status_code for _ in range(6)] == [401] * 5 + [429]
    assert Api().post(path, body).status_code == 429
    assert home.post(path, body).status_code == 200
    # There too five tries are all.
    assert [home.post(path, wrong).status_code for _ in range(6)] == [401] * 5 + [429]
    assert home.post(path, body).status_code == 429


@pytest.mark.parametrize("kind", ["end_user", "admin"])
def test_login_network_of_another_user_is_unknown(new_tenant: Callable[[], TestTenant], kind: str) -> None:
    tenant, others_home = new_tenant(), Api()
    if kind == "admin":
        path, other = ADMIN, new_tenant().admin
        body = {"username": tenant.admin.username, "password": PASSWORD}
        others = {"username": other.username, "password": PASSWORD}
    else:
        path, body, others = END_USER, login(tenant, tenant.register()), login(tenant, tenant.register())
    assert others_home.post(path, others).status_code == 200
    wrong = {**body, "password": "wrong wrong"}
    assert [Api().post(path, wrong).status_code for _ in range(6)] == [401] * 5 + [429]
    # The other user's sign-in gives this network no budget of its own for anybody else's password.
    assert others_home.post(path, wrong).status_code == 429
    assert others_home.post(path, others).status_code == 200


def test_unknown_name_locks_like_a_known_one(tenant: TestTenant) -> None:
    unknown = User(tenant.admin.id, f"unknown-{uuid4()}@example.com")
    statuses = [Api().post(END_USER, login(tenant, unknown)).status_code for _ in range(6)]
    assert statuses == [401] * 5 + [429]


def test_lock_doubles_and_right_password_clears_it(tenant: TestTenant) -> None:
    person = tenant.register()

    def wait_over() -> None:
        with in_tenant(tenant.id):
            EndUserAttempts.objects.filter(failures__gte=5).update(locked_until=now() - timedelta(seconds=1))

    def lock() -> int:
        for _ in range(5):
            Api().post(END_USER, login(tenant, person, password="wrong wrong"))
        return int(Api().post(END_USER, login(tenant, person)).headers["Retry-After"])

    waits = []
    for _ in range(6):
        waits.append(lock())
        wait_over()
    assert [round(wait / 60) for wait in waits] == [1, 2, 4, 8, 15, 15]
    assert Api().post(END_USER, login(tenant, person)).status_code == 200
    assert round(lock() / 60) == 1


def test_parallel_guesses_compare_at_most_five(tenant: TestTenant) -> None:
    person = tenant.register()

    def guess(_: int) -> int:
        try:
            return int(Api().post(END_USER, login(tenant, person, password="wrong wrong")).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(guess, range(60)))
    assert statuses.count(401) == 5
    assert set(statuses) == {401, 429}


def test_login_limit_per_address(tenant: TestTenant) -> None:
    hasty = Api()
    body = {"client_id": "no-id"}
    for _ in range(3):
        assert hasty.post(END_USER, body).status_code == 400
    sent = login(tenant, User(tenant.admin.id, "x@example.com"), client_id=str(tenant.id), tenant_id=str(tenant.id))
    refused = next(number for number in range(1, 250) if hasty.post(END_USER, sent).status_code == 429)
    assert refused == 121
    forged = hasty.post(END_USER, sent, headers={"X-Forwarded-For": "10.9.9.9"})
    assert forged.status_code == 429


def test_wrong_secret_limit_per_address(tenant: TestTenant, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "wrong_secret": (3, 86_400)}
    guesser, person = Api(), tenant.register()
    wrong = login(tenant, person, password="wrong wrong")
    assert [guesser.post(END_USER, wrong).status_code for _ in range(4)] == [401, 401, 401, 429]
    refused = guesser.post(END_USER, login(tenant, person))
    assert refused.status_code == 429
    assert 1 < int(refused.headers["Retry-After"]) <= 86_400
    assert Api().post(END_USER, login(tenant, person)).status_code == 200


def test_failed_logins_are_audited_with_ids_only(tenant: TestTenant) -> None:
    person = tenant.register()
    Api().post(END_USER, login(tenant, person, password="wrong wrong"))
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(action="signin.refused", target_id=str(person.id))
        assert (event.outcome, event.actor_kind, event.details) == (
            "refused",
            "anonymous",
            {"reason": "wrong_password"},
        )
        assert event.address
        assert event.request_id


@pytest.mark.quiet_machine
@pytest.mark.usefixtures("production_hashes")
def test_unknown_user_and_wrong_password_cost_the_same(tenant: TestTenant) -> None:
    def spent(email: str) -> float:
        # The thread's own CPU: other processes of a busy machine do not count.
        began = time.thread_time()
        Api().post(END_USER, {"client_id": str(tenant.client_id), "email": email, "password": "wrong wrong"})
        return time.thread_time() - began

    def ratio() -> float:
        people = [tenant.register() for _ in range(5)]
        pairs = [
            (spent(person.email), spent(f"unknown-{n}-{person.id}@example.com")) for person in people for n in range(4)
        ]
        known, unknown = (statistics.median(times) for times in zip(*pairs, strict=True))
        return known / unknown

    # Without a dummy hash the unknown would cost a fourth, each time; the load of another process shows in one of them only.
    assert any(0.7 < ratio() < 1.4 for _ in range(4))


def test_login_stores_session_and_last_login(tenant: TestTenant) -> None:
    person = tenant.register()
    tenant.sign_in(person)
    with in_tenant(tenant.id):
        session = EndUserSession.objects.get(user_id=person.id)
        assert (session.client_id, session.amr, session.ended_at) == (tenant.client_id, ["pwd"], None)
        assert EndUser.objects.get(pk=person.id).last_login == session.created_at


def test_login_statement_counts(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person = tenant.register()
    tenant.sign_in(person)
    with capture_statements() as seen:
        tenant.sign_in(person)
    # Tenant and client; who it is and the try, committed before the password is looked at; and all that a right one earns.
    assert seen.counts == (0, 3)
    assert "INSERT INTO audit_tenantevent" in seen.tenant[2]


def test_logout_ends_one_or_all_sessions(tenant: TestTenant) -> None:
    person = tenant.register()
    one, two, three = (tenant.as_user(person) for _ in range(3))
    own = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    assert one.post("/authmgr/logout").json()["sessions_ended"] == 1
    assert [api.get(own).status_code for api in (one, two, three)] == [401, 200, 200]
    assert two.post("/authmgr/logout", {"all": True}).json()["sessions_ended"] == 2
    assert [api.get(own).status_code for api in (one, two, three)] == [401, 401, 401]
    assert tenant.api.get("/uflow/admin/users/me").status_code == 200
