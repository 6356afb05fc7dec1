"""Password reset: a mailed link that works once within 30 minutes, for one user of one tenant."""

import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.core import mail as django_mail
from django.db import connections
from django.test import Client as DjangoClient
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.entering.context import in_tenant
from tests.copies import change_tenant
from tests.world import PASSWORD, Api, TestTenant, User, capture_statements, sign_in_admin
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import AdminTicket, EndUserSession, EndUserTicket
from userflow.errors import WrongCredentials
from userflow.mail_delivery import background
from userflow.signin.delivery import ApplicationTokens
from userflow.signin.pipeline import completion_of

FORGOT, RESET = "/uflow/auth/enduser/password/forgot", "/uflow/auth/enduser/password/reset"
ADMIN_FORGOT, ADMIN_RESET = "/uflow/auth/admin/password/forgot", "/uflow/auth/admin/password/reset"
NEW = "another horse 8 battery"


def mails_to(address: str) -> list[Any]:
    """Return all mails except the one of the registration."""
    assert background.settle(60)
    sent_there = [sent for sent in django_mail.outbox if sent.to == [address]]
    return [sent for sent in sent_there if "verify your e-mail address" not in sent.subject]


def ask(tenant: TestTenant, person: User) -> str:
    """Request a link and return the token of the mail."""
    response = Api().post(FORGOT, {"email": person.email, "client_id": str(tenant.client_id)})
    assert response.status_code == 200, response.content
    return token_in(mails_to(person.email)[-1])


def token_in(sent: Any) -> str:
    found = re.search(r"token=(\S+)", sent.body)
    assert found
    return found[1]


def login(tenant: TestTenant, person: User, password: str) -> int:
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": password}
    return int(Api().post("/uflow/auth/enduser/login", body).status_code)


def test_reset_sets_password_and_ends_every_session(tenant: TestTenant) -> None:
    person = tenant.register()
    before = tenant.as_user(person)
    token = ask(tenant, person)
    response = Api().post(RESET, {"token": token, "password": NEW})
    assert (response.status_code, response.json()["sessions_ended"]) == (200, 1)
    assert before.get("/authmgr/profile").status_code == 401
    assert (login(tenant, person, PASSWORD), login(tenant, person, NEW)) == (401, 200)
    assert "changed" in mails_to(person.email)[-1].subject
    with in_tenant(tenant.id):
        actions = list(TenantEvent.objects.filter(target_id=str(person.id)).values_list("action", flat=True))
    assert {"password.reset_asked", "password.reset"} <= set(actions)


def test_reset_mail_has_link_and_token_stored_hashed(tenant: TestTenant) -> None:
    person = tenant.register()
    token = ask(tenant, person)
    sent = mails_to(person.email)[-1]
    assert f"http://localhost:8000/t/{tenant.slug}/reset#token={token}" in sent.body
    assert sent.extra_headers["Auto-Submitted"] == "auto-generated"
    with in_tenant(tenant.id):
        ticket = EndUserTicket.objects.get(user_id=person.id, purpose="password_reset")
        assert len(bytes(ticket.digest)) == 32
        assert token.split(".")[1].encode() not in bytes(ticket.digest)
        assert timedelta(minutes=29) < ticket.expires_at - now() <= timedelta(minutes=30)


def test_reset_token_works_once_and_survives_weak_password(tenant: TestTenant) -> None:
    person = tenant.register()
    token = ask(tenant, person)
    weak = Api().post(RESET, {"token": token, "password": "password1"})
    assert (weak.status_code, list(weak.json()["details"])) == (400, ["password"])
    assert Api().post(RESET, {"token": token, "password": NEW}).status_code == 200
    again = Api().post(RESET, {"token": token, "password": "third horse 7 battery"})
    assert again.status_code == 400
    assert login(tenant, person, NEW) == 200


def test_concurrent_resets_with_one_link_set_one_password(tenant: TestTenant) -> None:
    token = ask(tenant, tenant.register())

    def use(number: int) -> int:
        try:
            return int(Api().post(RESET, {"token": token, "password": f"{NEW} {number}"}).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(use, range(8)))
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 400, 503}


def test_concurrent_resets_with_two_links_set_one_password(tenant: TestTenant) -> None:
    for _ in range(8):
        person = tenant.register()
        tokens = [ask(tenant, person), ask(tenant, person)]

        def use(token: str) -> int:
            try:
                return int(Api().post(RESET, {"token": token, "password": NEW}).status_code)
            finally:
                connections.close_all()

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(use, tokens)) == [200, 400]


def test_reset_rejects_expired_token(tenant: TestTenant) -> None:
    person = tenant.register()
    token = ask(tenant, person)
    with in_tenant(tenant.id):
        EndUserTicket.objects.filter(user_id=person.id, purpose="password_reset").update(expires_at=now())
    assert Api().post(RESET, {"token": token, "password": NEW}).status_code == 400


def test_reset_token_is_bound_to_tenant_user_and_realm(tenant: TestTenant, other_tenant: TestTenant) -> None:
    token = ask(tenant, tenant.register())
    secret = token.split(".")[1]
    elsewhere = f"{other_tenant.id.hex}.{secret}"
    nowhere = f"{UUID(int=0).hex}.{secret}"
    for tried in (elsewhere, nowhere, secret, "x", f"{tenant.id.hex}.", f"{tenant.id}.{secret}"):
        assert Api().post(RESET, {"token": tried, "password": NEW}).status_code == 400
    assert Api().post(ADMIN_RESET, {"token": secret, "password": NEW}).status_code == 400
    other = {"token": token, "password": NEW, "tenant_id": str(other_tenant.id)}
    assert Api().post(RESET, other).status_code == 400
    assert Api().post(RESET, {**other, "tenant_id": str(tenant.id)}).status_code == 200


def test_reset_rejects_ticket_of_another_purpose(tenant: TestTenant) -> None:
    body = {
        "tenant_id": str(tenant.id),
        "client_id": str(tenant.client_id),
        "email": f"someone-{secrets.token_hex(5)}@example.com",
        "password": PASSWORD,
    }
    enrollment = Api().post("/uflow/user/clients/register", body).headers["X-Enrollment-Ticket"]
    tried = {"token": f"{tenant.id.hex}.{enrollment}", "password": NEW}
    assert Api().post(RESET, tried).status_code == 400


def test_forgot_reveals_nothing_about_users(tenant: TestTenant, other_tenant: TestTenant) -> None:
    known, off, synced = tenant.register(), tenant.register(), tenant.register()
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=off.id).update(active=False)
        EndUser.objects.filter(pk=synced.id).update(provider="entra_id", email_verified_at=now())
    asked = [
        {"email": known.email, "client_id": str(tenant.client_id)},
        {"email": "unknown-user@example.com", "client_id": str(tenant.client_id)},
        {"email": off.email, "client_id": str(tenant.client_id)},
        {"email": synced.email, "client_id": str(tenant.client_id)},
        {"email": known.email, "client_id": str(other_tenant.client_id)},
        {"email": known.email, "client_id": str(UUID(int=1))},
        {"email": known.email, "tenant_id": str(UUID(int=1))},
        {"email": known.email, "tenant_id": str(other_tenant.id), "client_id": str(tenant.client_id)},
    ]
    responses = [Api().post(FORGOT, body) for body in asked]
    assert {(response.status_code, response.content) for response in responses} == {(200, responses[0].content)}
    assert background.settle(60)
    sent = [sent.to[0] for sent in django_mail.outbox if "set a new password" in sent.subject]
    assert [to for to in sent if to in {body["email"] for body in asked}] == [known.email]


def test_forgot_looks_for_no_user_before_the_response(tenant: TestTenant) -> None:
    person = tenant.register()
    for email in (person.email, "unknown@example.com"):
        assert background.settle()
        with capture_statements() as seen:
            Api().post(FORGOT, {"email": email, "client_id": str(tenant.client_id)})
        # The tenant and the client; the request is queued.
        assert seen.counts == (0, 3)
        assert 'INSERT INTO "userflow_tenantmail"' in seen.tenant[-1]


@pytest.mark.parametrize("known", [True, False])
def test_forgot_is_limited_to_five_mails_an_hour(tenant: TestTenant, known: bool) -> None:
    email = tenant.register().email if known else f"unknown-{secrets.token_hex(4)}@example.com"
    body = {"email": email, "tenant_id": str(tenant.id)}
    statuses = [Api().post(FORGOT, body).status_code for _ in range(6)]
    assert statuses == [200] * 5 + [429]
    rejected = Api().post(FORGOT, body)
    assert 1 <= int(rejected.headers["Retry-After"]) <= 3600
    assert len(mails_to(email)) == (5 if known else 0)


def test_forgot_limit_holds_for_tenant_and_client_ids(tenant: TestTenant) -> None:
    person = tenant.register()
    for named in ({"tenant_id": str(tenant.id)}, {"client_id": str(tenant.client_id)}):
        for _ in range(4):
            Api().post(FORGOT, {"email": person.email, **named})
    assert len(mails_to(person.email)) == 5


def test_forgot_requires_tenant_or_client(api: Api) -> None:
    response = api.post(FORGOT, {"email": "ann@example.com"})
    assert (response.status_code, list(response.json()["details"])) == (400, ["client_id"])


def test_reset_unlocks_user_and_ends_pending_login(tenant: TestTenant) -> None:
    person = tenant.register()
    for _ in range(6):
        login(tenant, person, "wrong horse 9 battery")
    assert login(tenant, person, PASSWORD) == 429
    Api().post(RESET, {"token": ask(tenant, person), "password": NEW})
    assert login(tenant, person, NEW) == 200
    with in_tenant(tenant.id):
        assert not EndUserTicket.objects.filter(user_id=person.id, purpose="second_step").exists()


def test_address_change_voids_reset_links(tenant: TestTenant) -> None:
    person = tenant.register()
    token = ask(tenant, person)
    new_address = f"moved-{secrets.token_hex(4)}@example.com"
    moved = tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{person.id}", {"email": new_address})
    assert moved.status_code == 200, moved.content
    assert Api().post(RESET, {"token": token, "password": NEW}).status_code == 400


def test_reset_mail_names_tenant_and_its_page(new_tenant: Any) -> None:
    own = new_tenant()
    own.row.settings = {
        "issuer_name": "Acme Shop",
        "password_reset_url": "https://shop.example/reset",
        "password_min_length": 30,
    }
    change_tenant(own.id, settings=own.row.settings)
    person = own.register(password=PASSWORD * 2)
    token = ask(own, person)
    sent = mails_to(person.email)[-1]
    assert sent.subject == "Acme Shop: set a new password"
    assert f"https://shop.example/reset#token={token}" in sent.body
    assert Api().post(RESET, {"token": token, "password": NEW}).status_code == 400
    assert Api().post(RESET, {"token": token, "password": NEW * 2}).status_code == 200


@pytest.mark.parametrize("way", ["api", "console"])
def test_admin_reset_link_never_leads_to_a_tenants_page(way: str, new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    page = {"settings": {"password_reset_url": "https://shop.example/reset"}}
    assert operator.patch(f"/uflow/admin/tenants/{own.id}", page).status_code == 200
    if way == "api":
        assert Api().post(ADMIN_FORGOT, {"email": own.admin.email}).status_code == 200
    else:
        assert DjangoClient().post("/admin/forgotten/", {"email": own.admin.email}).status_code == 302
    (sent,) = [mail for mail in mails_to(own.admin.email) if "#token=" in mail.body]
    assert "shop.example" not in sent.body
    assert f"{settings.PASSWORD_RESET_URL}#token={token_in(sent)}" in sent.body


def test_admin_resets_password(new_tenant: Any) -> None:
    own = new_tenant()
    assert Api().post(ADMIN_FORGOT, {"email": own.admin.email.upper()}).status_code == 200
    token = token_in(mails_to(own.admin.email)[-1])
    assert Api().post(RESET, {"token": f"{own.id.hex}.{token}", "password": NEW}).status_code == 400
    response = Api().post(ADMIN_RESET, {"token": token, "password": NEW})
    assert response.status_code == 200
    assert own.api.get("/authmgr/profile").status_code == 401
    assert sign_in_admin(own.admin.username, NEW)["access_token"]
    assert not AdminTicket.objects.filter(user_id=own.admin.id, purpose="password_reset").exists()
    trail = PlatformEvent.objects.filter(target_id=str(own.admin.id)).values_list("action", flat=True)
    assert {"password.reset_asked", "password.reset"} <= set(trail)


def test_reset_rejects_admin_of_suspended_tenant(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    assert Api().post(ADMIN_FORGOT, {"email": own.admin.email}).status_code == 200
    body = {"token": token_in(mails_to(own.admin.email)[-1]), "password": NEW}
    for status, expected in (("suspended", 400), ("active", 200)):
        assert operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": status}).status_code == 200
        response = Api().post(ADMIN_RESET, body)
        assert response.status_code == expected, response.content


def test_forgot_mails_no_inactive_user(tenant: TestTenant, new_tenant: Any, operator: Api) -> None:
    person, own = tenant.register(), new_tenant()
    assert tenant.api.delete(f"/uflow/user/enduser/{tenant.id}/{person.id}").status_code == 200
    colleague = {"username": f"off-{secrets.token_hex(4)}", "email": f"off-{secrets.token_hex(4)}@example.com"}
    names = {"password": PASSWORD, "first_name": "A", "last_name": "B"}
    made = own.api.post("/uflow/admin/users", {**colleague, **names}).json()
    assert own.api.delete(f"/uflow/admin/users/{made['id']}").status_code == 200
    for path, body in (
        (FORGOT, {"email": person.email, "tenant_id": str(tenant.id)}),
        (ADMIN_FORGOT, {"email": colleague["email"]}),
    ):
        assert Api().post(path, body).status_code == 200
        assert not [sent for sent in mails_to(body["email"]) if "new password" in sent.subject]


def test_forgot_needs_an_active_client_of_the_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person = tenant.register()
    body = {"name": f"off-{secrets.token_hex(4)}", "type": "public"}
    client = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body).json()
    off = f"/clientms/tenants/{tenant.id}/clients/{client['id']}/deactivate"
    assert tenant.api.patch(off).status_code == 200
    for named in (
        {"client_id": client["id"]},
        {"client_id": str(other_tenant.client_id)},
        {"client_id": str(tenant.client_id), "tenant_id": str(other_tenant.id)},
    ):
        assert Api().post(FORGOT, {"email": person.email, **named}).status_code == 200
    assert mails_to(person.email) == []


def test_login_racing_a_reset_gets_no_session(tenant: TestTenant) -> None:
    person = tenant.register()
    token = ask(tenant, person)
    with in_tenant(tenant.id):
        half_way = EndUser.objects.get(pk=person.id)
    assert Api().post(RESET, {"token": token, "password": NEW}).status_code == 200
    with in_tenant(tenant.id):
        login = completion_of(half_way, amr=("pwd",), delivery=ApplicationTokens(), client_id=tenant.client_id)
        with pytest.raises(WrongCredentials), END_USERS.atomic():
            login.open(END_USERS, half_way)
    with in_tenant(tenant.id):
        assert not EndUserSession.objects.filter(user_id=person.id, ended_at=None).exists()


def test_mail_limit_is_counted_per_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person, twin = tenant.register(), f"twin-{secrets.token_hex(5)}@example.com"
    rows = {"tenant_id": str(other_tenant.id), "rows": [{"id": str(person.id), "email": twin}]}
    assert other_tenant.api.post("/uflow/admin/enduser/import", rows).json()["created"] == 1
    for _ in range(5):
        assert Api().post(FORGOT, {"email": twin, "client_id": str(other_tenant.client_id)}).status_code == 200
    assert len(mails_to(twin)) == 5
    assert ask(tenant, person)
