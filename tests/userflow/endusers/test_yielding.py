"""An unused registration gives up its address to the owner of the address."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.copies import create_client
from tests.mfa.people import new_user
from tests.userflow.mailbox import mails_to, token_in
from tests.world import PASSWORD, Api, TestTenant, User
from userflow.accounts.models import EndUser

REGISTER = "/uflow/user/clients/register"
LOGIN = "/uflow/auth/enduser/login"
INVITATIONS = "/uflow/admin/invitations"
OTHER = "another horse 9 battery"


def body(tenant: TestTenant, email: str, **members: Any) -> dict[str, Any]:
    return {
        "tenant_id": str(tenant.id),
        "client_id": str(tenant.client_id),
        "email": email,
        "password": OTHER,
        **members,
    }


def login(tenant: TestTenant, email: str, password: str, api: Api | None = None) -> Any:
    sent = {"client_id": str(tenant.client_id), "email": email, "password": password}
    return (api or Api()).post(LOGIN, sent)


def test_register_rejects_another_provider_without_the_right(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = f"google-{secrets.token_hex(5)}@example.com"
    sent = {**body(tenant, email), "provider": "google"}
    del sent["password"]
    rejected = Api().post(REGISTER, sent)
    assert (rejected.status_code, rejected.json()["error"]) == (403, "Forbidden")
    assert tenant.as_user(tenant.register()).post(REGISTER, sent).status_code == 403
    assert other_tenant.api.post(REGISTER, sent).status_code == 403
    with in_tenant(tenant.id):
        assert not EndUser.objects.filter(email=email).exists()
    assert tenant.api.post(REGISTER, sent).status_code == 201


def test_register_other_provider_on_closed_client_is_401(tenant: TestTenant) -> None:
    closed = create_client(tenant_id=tenant.id, name="closed", self_registration=False)
    sent = body(tenant, "a@example.com", client_id=str(closed.pk), provider="google")
    assert Api().post(REGISTER, sent).status_code == 401


def test_an_unused_registration_does_not_yield_to_another(tenant: TestTenant, other_tenant: TestTenant) -> None:
    first, elsewhere = new_user(tenant).enrol_totp(), other_tenant.register()
    assert Api().post(REGISTER, body(tenant, first.email.upper())).status_code == 409
    assert login(tenant, first.email, PASSWORD).status_code == 200
    assert Api().post(REGISTER, body(other_tenant, first.email)).status_code == 201
    assert login(other_tenant, elsewhere.email, PASSWORD).status_code == 200


def test_password_of_an_admin_replaces_no_registration(tenant: TestTenant) -> None:
    person = tenant.register()
    rejected = tenant.api.post(REGISTER, body(tenant, person.email.upper()))
    assert (rejected.status_code, rejected.json()["code"]) == (409, "email_taken")
    assert login(tenant, person.email, OTHER).status_code == 401
    assert login(tenant, person.email, PASSWORD).status_code == 200


def test_an_admin_replaces_an_unused_registration(tenant: TestTenant, other_tenant: TestTenant) -> None:
    squatter, elsewhere = tenant.register(), other_tenant.register()
    without = {**body(tenant, squatter.email.upper()), "provider": "google"}
    made = tenant.api.post(REGISTER, {name: value for name, value in without.items() if name != "password"})
    assert made.status_code == 201, made.content
    assert made.json()["user_id"] != str(squatter.id)
    assert login(tenant, squatter.email, PASSWORD).status_code == 401
    assert tenant.api.get(f"/uflow/user/enduser/{tenant.id}/{squatter.id}").status_code == 404
    assert login(other_tenant, elsewhere.email, PASSWORD).status_code == 200
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(action="end_user.superseded", target_id=str(squatter.id))
        assert event.details == {"by": "registration"}


def test_a_reset_by_mail_removes_the_squatters_factor_and_tickets(tenant: TestTenant) -> None:
    squatter = new_user(tenant).enrol_totp()
    assert Api().post(REGISTER, body(tenant, squatter.email)).status_code == 409
    named = {"tenant_id": str(tenant.id), "email": squatter.email}
    assert Api().post("/uflow/auth/enduser/password/forgot", named).status_code == 200
    token = mails_to(squatter.email, "new password")[-1].body.partition("#token=")[2].split()[0]
    sent = {"token": token, "password": OTHER}
    assert Api().post("/uflow/auth/enduser/password/reset", sent).status_code == 200
    assert login(tenant, squatter.email, OTHER).json()["mfa_required"] is False
    proof = {"X-Enrollment-Ticket": squatter.ticket}
    assert squatter.api.post("/webauthn/totp/beginSetup", squatter.name, headers=proof).status_code == 401
    assert squatter.api.post("/webauthn/totp/beginSetup", squatter.name).status_code == 401


def test_register_twice_from_one_address_is_409(tenant: TestTenant) -> None:
    api, email = Api(), f"twice-{secrets.token_hex(5)}@example.com"
    assert api.post(REGISTER, body(tenant, email)).status_code == 201
    assert api.post(REGISTER, body(tenant, email)).status_code == 409


def used(tenant: TestTenant, person: User) -> None:
    tenant.sign_in(person)


def verified(tenant: TestTenant, person: User) -> None:
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=person.id).update(email_verified_at="2026-01-01T00:00:00Z")


def deactivated(tenant: TestTenant, person: User) -> None:
    tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{person.id}/status", {"active": False})


@pytest.mark.parametrize("change", [used, verified, deactivated])
def test_register_rejects_used_verified_and_inactive_users(
    tenant: TestTenant, change: Callable[[TestTenant, User], None]
) -> None:
    person = tenant.register()
    change(tenant, person)
    assert Api().post(REGISTER, body(tenant, person.email)).status_code == 409
    assert tenant.api.post(INVITATIONS, {"email": person.email, "kind": "end_user"}).status_code == 409
    assert tenant.api.get(f"/uflow/user/enduser/{tenant.id}/{person.id}").status_code == 200


def test_register_rejects_user_registered_by_an_admin(tenant: TestTenant) -> None:
    email = f"made-{secrets.token_hex(5)}@example.com"
    assert tenant.api.post(REGISTER, body(tenant, email, provider="google")).status_code == 201
    assert Api().post(REGISTER, body(tenant, email)).status_code == 409
    assert tenant.api.post(INVITATIONS, {"email": email, "kind": "end_user"}).status_code == 409


def test_an_invitation_replaces_an_unused_registration(tenant: TestTenant) -> None:
    squatter = tenant.register()
    made = tenant.api.post(INVITATIONS, {"email": squatter.email, "kind": "end_user"})
    assert made.status_code == 201
    token = token_in(mails_to(squatter.email, "invited")[-1])
    accepted = Api().post("/uflow/invitations/accept", {"token": token, "password": OTHER})
    assert accepted.status_code == 201
    assert login(tenant, squatter.email, PASSWORD).status_code == 401
    assert login(tenant, squatter.email, OTHER).status_code == 200


def test_only_the_user_of_a_change_replaces_an_unused_registration(tenant: TestTenant) -> None:
    squatter, person, careful = tenant.register(), tenant.register(), new_user(tenant).enrol_totp()
    users = f"/uflow/user/enduser/{tenant.id}"
    assert tenant.api.put(f"{users}/{person.id}", {"email": squatter.email}).status_code == 409
    assert tenant.api.put(f"{users}/{careful.id}", {"email": squatter.email}).status_code == 200
    assert tenant.api.get(f"{users}/{squatter.id}").status_code == 200
    token = token_in(mails_to(squatter.email, "verify your e-mail address")[-1])
    # The reader of the mail may be the owner of the registration.
    assert Api().post("/uflow/user/email/verify", {"token": token}).status_code == 409
    own = {"token": token, "current_password": PASSWORD}
    assert Api().post("/uflow/user/email/verify", own).json()["user_id"] == str(careful.id)
    assert tenant.api.get(f"{users}/{squatter.id}").status_code == 404


@pytest.mark.parametrize("on_conflict", ["fail", "update", "skip"])
def test_an_import_replaces_an_unused_registration(tenant: TestTenant, on_conflict: str) -> None:
    squatter = tenant.register()
    rows = [{"email": squatter.email, "email_verified": True}]
    sent = {"tenant_id": str(tenant.id), "rows": rows, "on_conflict": on_conflict}
    assert tenant.api.post("/uflow/admin/enduser/import", {**sent, "dry_run": True}).json()["created"] == 1
    assert tenant.api.post("/uflow/admin/enduser/import", sent).json()["created"] == 1
    assert login(tenant, squatter.email, PASSWORD).status_code == 401


def test_concurrent_login_and_registrations_by_admins_leave_one_user(tenant: TestTenant) -> None:
    for _ in range(5):
        squatter = tenant.register()

        def register(email: str = squatter.email) -> int:
            try:
                return int(tenant.api.post(REGISTER, body(tenant, email)).status_code)
            finally:
                connections.close_all()

        def sign_in(email: str = squatter.email) -> int:
            try:
                return int(login(tenant, email, PASSWORD).status_code)
            finally:
                connections.close_all()

        with ThreadPoolExecutor(5) as pool:
            signed_in = pool.submit(sign_in)
            statuses = [future.result() for future in [pool.submit(register) for _ in range(4)]]
        assert set(statuses) <= {201, 409}
        with in_tenant(tenant.id):
            (kept,) = EndUser.objects.filter(email=squatter.email)
        assert (kept.pk == squatter.id) == (signed_in.result() == 200)
