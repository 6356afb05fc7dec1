"""Undo a change of e-mail address from the old address."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.entering.context import in_tenant
from tests.mfa.people import new_user
from tests.userflow.email.test_proofs import last_proof, strict_tenant, verify
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.user_index.reading import indexed
from tests.world import PASSWORD, Api, TestTenant, User, sign_in_admin
from userflow.accounts.models import EndUser
from userflow.credentials.models import EndUserEmailUndo

UNDO, REGISTER = "/uflow/user/email/undo", "/uflow/user/clients/register"
CHANGED = "address is changing"


def address() -> str:
    return f"undo-{secrets.token_hex(5)}@example.com"


def link_to(email: str) -> str:
    """Return the token of the newest mail that undoes a change."""
    return token_in(mails_to(email, CHANGED)[-1])


def undo(token: str) -> Any:
    return Api().post(UNDO, {"token": token})


def sign_in(tenant: TestTenant, email: str) -> int:
    body = {"client_id": str(tenant.client_id), "email": email, "password": PASSWORD}
    return int(Api().post("/uflow/auth/enduser/login", body).status_code)


def changed(tenant: TestTenant, person: User, email: str) -> Any:
    """Change the address as an admin."""
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    response = tenant.api.put(path, {"email": email})
    assert response.status_code == 200
    return response.json()


def moved(tenant: TestTenant, person: User, email: str) -> None:
    """Change the address as an admin and verify the new one."""
    changed(tenant, person, email)
    assert verify(token=token_in(last_proof(email))).status_code == 200


def verified(tenant: TestTenant) -> User:
    """Return a registered user with a verified address."""
    person = tenant.register()
    assert verify(token=token_in(last_proof(person.email))).status_code == 200
    return person


def test_undo_restores_the_address_and_ends_every_session(tenant: TestTenant) -> None:
    person, new = verified(tenant), address()
    moved(tenant, person, new)
    session = tenant.as_user(User(person.id, new))
    done = undo(link_to(person.email))
    assert (done.status_code, done.json()["email"], done.json()["user_id"]) == (200, person.email, str(person.id))
    assert session.get("/authmgr/profile").status_code == 401
    assert (sign_in(tenant, person.email), sign_in(tenant, new)) == (200, 401)
    assert (indexed(tenant, person.email), indexed(tenant, new)) == ([person.id], [])
    with in_tenant(tenant.id):
        assert TenantEvent.objects.filter(action="email.change_undone", target_id=str(person.id)).count() == 1
        assert EndUser.objects.get(pk=person.id).email_verified_at is not None


def test_change_of_a_verified_address_waits(tenant: TestTenant) -> None:
    person, new = verified(tenant), address()
    assert changed(tenant, person, new)["email"] == person.email
    assert (sign_in(tenant, person.email), sign_in(tenant, new)) == (200, 401)
    assert verify(token=token_in(last_proof(new))).status_code == 200
    assert (sign_in(tenant, person.email), sign_in(tenant, new)) == (401, 200)


def test_unverified_address_gets_no_link_and_is_free(tenant: TestTenant) -> None:
    person = tenant.register()
    tenant.sign_in(person)
    assert changed(tenant, person, new := address())["email"] == new
    assert "#token=" not in mails_to(person.email, CHANGED)[-1].body
    tenant.register(person.email)


def test_undo_restores_over_later_changes_and_voids_their_links(tenant: TestTenant) -> None:
    person, second, third = verified(tenant), address(), address()
    moved(tenant, person, second)
    moved(tenant, person, third)
    assert undo(link_to(person.email)).status_code == 200
    assert undo(link_to(second)).status_code == 400
    assert (sign_in(tenant, person.email), sign_in(tenant, third)) == (200, 401)


def test_undo_of_a_later_change_leaves_earlier_links(tenant: TestTenant) -> None:
    person, second, third = verified(tenant), address(), address()
    moved(tenant, person, second)
    moved(tenant, person, third)
    assert undo(link_to(second)).json()["email"] == second
    assert undo(link_to(person.email)).json()["email"] == person.email


def test_undo_cancels_a_pending_change(new_tenant: Callable[[], TestTenant]) -> None:
    own = strict_tenant()
    person, new = own.register(), address()
    assert verify(token=token_in(last_proof(person.email))).status_code == 200
    changed(own, person, new)
    waiting = token_in(last_proof(new))
    assert undo(link_to(person.email)).status_code == 200
    assert verify(token=waiting).status_code == 400
    assert sign_in(own, person.email) == 200


def test_undo_rejects_unknown_used_expired_and_foreign_links(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person, late = verified(tenant), verified(tenant)
    moved(tenant, person, address())
    moved(tenant, late, address())
    token, expired = link_to(person.email), link_to(late.email)
    with in_tenant(tenant.id):
        EndUserEmailUndo.objects.filter(user_id=late.id).update(expires_at=now() - timedelta(seconds=1))
    secret = token.partition(".")[2]
    for wrong in (expired, "x", f"{other_tenant.id.hex}.{secret}", f"p.{secret}"):
        assert undo(wrong).status_code == 400
    assert [undo(token).status_code for _ in range(2)] == [200, 400]


def test_undo_links_used_at_once_work_once(tenant: TestTenant) -> None:
    person = verified(tenant)
    moved(tenant, person, address())
    token = link_to(person.email)

    def follow(_: int) -> int:
        try:
            return int(undo(token).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(follow, range(8))) == [200] + [400] * 7


def test_the_old_address_is_reserved_while_the_link_is_valid(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person, rival = verified(tenant), tenant.register()
    moved(tenant, person, address())
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "password": PASSWORD}
    assert Api().post(REGISTER, {**body, "email": person.email}).status_code == 409
    taken = tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{rival.id}", {"email": person.email})
    assert taken.status_code == 409
    other_tenant.register(person.email)
    with in_tenant(tenant.id):
        EndUserEmailUndo.objects.filter(user_id=person.id).update(expires_at=now())
    assert Api().post(REGISTER, {**body, "email": person.email}).status_code == 201


def test_undo_of_an_address_that_another_user_verified_is_409(tenant: TestTenant) -> None:
    person = verified(tenant)
    moved(tenant, person, address())
    token = link_to(person.email)
    invited = tenant.api.post("/uflow/admin/invitations", {"email": person.email, "kind": "end_user"})
    assert invited.status_code == 201
    accept = {"token": token_in(mails_to(person.email, "invited")[-1]), "password": PASSWORD}
    assert Api().post("/uflow/invitations/accept", accept).status_code == 201
    assert undo(token).status_code == 409


def test_change_of_address_with_a_factor_is_pending(tenant: TestTenant) -> None:
    person, new = new_user(tenant).enrol_totp(), address()
    changed(tenant, User(person.id, person.email), new)
    assert (sign_in(tenant, person.email), sign_in(tenant, new)) == (200, 401)
    assert verify(token=token_in(last_proof(new))).status_code == 200
    assert (sign_in(tenant, person.email), sign_in(tenant, new)) == (401, 200)


def test_pending_change_is_verified_by_one_of_two_users(tenant: TestTenant) -> None:
    people, new = [new_user(tenant).enrol_totp() for _ in range(2)], address()
    tokens = []
    for person in people:
        changed(tenant, User(person.id, person.email), new)
        tokens.append(token_in(last_proof(new)))

    def follow(token: str) -> int:
        try:
            return int(verify(token=token).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(follow, tokens)) == [200, 409]


@pytest.mark.parametrize("by", ["self", "operator"])
def test_undo_restores_an_admin_users_address(new_tenant: Callable[[], TestTenant], operator: Api, by: str) -> None:
    own, new = new_tenant(), address()
    api = own.api if by == "self" else operator
    changed = api.put(f"/uflow/admin/users/{own.admin.id}", {"email": new, "current_password": PASSWORD})
    assert (changed.status_code, changed.json()["email"]) == (200, new)
    session = Api(token=sign_in_admin(own.admin.username)["access_token"])
    assert undo(link_to(own.admin.email)).json()["email"] == own.admin.email
    assert session.get("/uflow/admin/users/me").status_code == 401
    assert sign_in_admin(own.admin.email)["user"]["id"] == str(own.admin.id)
    assert PlatformEvent.objects.filter(action="email.change_undone", target_id=str(own.admin.id)).count() == 1
