"""A verified address of an admin user is reserved; an unverified one is not."""

import io
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from tests.userflow.mailbox import mails_to, token_in
from tests.world import PASSWORD, Api, TestTenant, build_tenant, sign_in_admin
from userflow.accounts.models import AdminUser

USERS, LOGIN, VERIFY = "/uflow/admin/users", "/uflow/admin/auth/login", "/uflow/user/email/verify"
INVITATIONS = "/uflow/admin/invitations"
PROOF = "verify your e-mail address"


def address() -> str:
    return f"boss-{secrets.token_hex(5)}@example.com"


def made(tenant: TestTenant, email: str, **members: Any) -> Any:
    body = {"username": f"admin-{secrets.token_hex(5)}", "email": email, "password": PASSWORD}
    return tenant.api.post(USERS, {**body, "first_name": "A", "last_name": "B", **members})


def login(name: str) -> int:
    return int(Api().post(LOGIN, {"username": name, "password": PASSWORD}).status_code)


def verify(email: str, number: int = -1) -> Any:
    return Api().post(VERIFY, {"token": token_in(mails_to(email, PROOF)[number])})


def test_unverified_address_does_not_block_other_tenants(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = address()
    first, second = made(tenant, email), made(other_tenant, email)
    assert (first.status_code, second.status_code) == (201, 201)
    assert made(tenant, email).status_code == 409
    # Each can sign in by username; the address identifies neither.
    assert [login(response.json()["username"]) for response in (first, second)] == [200, 200]
    assert login(email) == 401


def test_login_accepts_unverified_address_of_one_user(tenant: TestTenant) -> None:
    email = address()
    made(tenant, email)
    assert login(email.upper()) == 200


def test_verified_address_is_reserved(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = address()
    first = made(tenant, email).json()
    made(other_tenant, email)
    done = verify(email, 0)
    assert (done.status_code, done.json()["user_id"]) == (200, first["id"])
    assert sign_in_admin(email)["user"]["id"] == first["id"]
    assert verify(email).status_code == 409
    assert made(build_tenant("third"), email).status_code == 409


def test_concurrent_verifications_of_one_address(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = address()
    made(tenant, email)
    made(other_tenant, email)
    tokens = [token_in(sent) for sent in mails_to(email, PROOF)]

    def follow(token: str) -> int:
        try:
            return int(Api().post(VERIFY, {"token": token}).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(follow, tokens)) == [200, 409]


def test_an_unverified_address_does_not_block_an_invitation(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = address()
    made(other_tenant, email)
    assert tenant.api.post(INVITATIONS, {"email": email, "kind": "admin"}).status_code == 201
    token = token_in(mails_to(email, "invited")[-1])
    accepted = Api().post("/uflow/invitations/accept", {"token": token, "password": PASSWORD})
    assert accepted.status_code == 201
    assert sign_in_admin(email)["user"]["id"] == accepted.json()["user_id"]


def test_a_username_like_an_address_does_not_hide_its_owner(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = address()
    made(other_tenant, email, username=email)
    owner = made(tenant, email).json()
    assert login(email) == 200
    verify(email)
    assert sign_in_admin(email)["user"]["id"] == owner["id"]


def test_conflict_reveals_neither_field_nor_tenant(
    tenant: TestTenant, other_tenant: TestTenant, operator_name: str
) -> None:
    responses = [
        made(tenant, other_tenant.admin.email),
        made(tenant, address(), username=other_tenant.admin.username),
        made(tenant, address(), username=operator_name),
        made(tenant, f"{operator_name}@example.com"),
        tenant.api.put(f"{USERS}/{tenant.admin.id}", {"username": operator_name}),
        tenant.api.put(f"{USERS}/{tenant.admin.id}", {"email": other_tenant.admin.email, "current_password": PASSWORD}),
        tenant.api.post(INVITATIONS, {"email": other_tenant.admin.email, "kind": "admin"}),
    ]
    assert {response.status_code for response in responses} == {409}
    assert len({response.content for response in responses}) == 1


def test_changed_admin_address_is_unverified(new_tenant: Callable[[], TestTenant]) -> None:
    own, email = new_tenant(), address()
    body = {"email": email, "current_password": PASSWORD}
    assert own.api.put(f"{USERS}/{own.admin.id}", body).json()["email"] == email
    assert AdminUser.objects.get(pk=own.admin.id).email_verified_at is None
    assert verify(email).status_code == 200
    assert AdminUser.objects.get(pk=own.admin.id).email_verified_at is not None


def test_change_of_address_with_a_factor_is_pending(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    own, email = new_tenant(), address()
    AdminUser.objects.filter(pk=own.admin.id).update(mfa_methods=["totp"])
    changed = operator.put(f"{USERS}/{own.admin.id}", {"email": email})
    assert (changed.status_code, changed.json()["email"]) == (200, own.admin.email)
    assert verify(email).json()["email"] == email
    assert AdminUser.objects.get(pk=own.admin.id).email == email


def test_reset_link_verifies_address_of_its_user(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = address()
    first, second = made(tenant, email).json(), made(other_tenant, email).json()
    assert Api().post("/uflow/auth/admin/password/forgot", {"email": email}).status_code == 200
    sent = mails_to(email, "new password")
    assert len(sent) == 2
    (own,) = [mail.body for mail in sent if f"your user {first['username']} at" in mail.body]
    reset = {"token": own.partition("token=")[2].split()[0], "password": PASSWORD}
    assert Api().post("/uflow/auth/admin/password/reset", reset).status_code == 200
    assert sign_in_admin(email)["user"]["id"] == first["id"]
    assert AdminUser.objects.get(pk=second["id"]).email_verified_at is None
    Api().post("/uflow/auth/admin/password/forgot", {"email": email})
    assert len(mails_to(email, "new password")) == 3


@pytest.mark.parametrize("purpose", ["enroll", "verify"])
def test_unverified_address_keeps_factors(tenant: TestTenant, other_tenant: TestTenant, purpose: str) -> None:
    """An admin of another tenant with the same address does not affect the factors of a user."""
    import pyotp

    email = address()
    username = made(tenant, email).json()["username"]
    made(other_tenant, email)
    api = Api(token=sign_in_admin(username)["access_token"])
    begun = api.post("/webauthn/admin/totp/beginSetup", {"email": email})
    assert begun.status_code == 200
    secret = pyotp.TOTP(begun.json()["secret"])
    sent = {"email": email, "secret": secret.secret, "code": secret.now(), "current_password": PASSWORD}
    assert api.post("/webauthn/admin/totp/confirmSetup", sent).status_code == 200
    if purpose == "verify":
        ticket = sign_in_admin(username)["mfa_token"]
        code = secret.at(int(time.time()) + 30)
        response = Api().post("/webauthn/admin/totp/verifyLogin", {"email": email, "code": code, "mfa_token": ticket})
        assert (response.status_code, "access_token" in response.json()) == (200, True)


def test_commands_create_verified_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"root-{secrets.token_hex(4)}"
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    call_command("createsuperuser", interactive=False, username=name, email=f"{name}@example.com", stdout=io.StringIO())
    assert AdminUser.objects.get(username=name).email_verified_at is not None
    assert AdminUser.objects.get(username=build_tenant("made").admin.username).email_verified_at is not None
