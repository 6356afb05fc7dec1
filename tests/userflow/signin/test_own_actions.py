"""Every operation by which users change how they prove who they are, with a session or proof that does not suffice."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.mfa.enrollment.calls import new_passkey
from tests.mfa.people import TestUser, new_user, some_phone
from tests.openapi.operations import operations_with_token, with_unknown_ids
from tests.userflow.sessions.aged import aged, strong
from tests.userflow.signin.test_action_table import ELSEWHERE, digests_of
from tests.world import PASSWORD, Api, TestTenant, build_tenant, sign_in_admin
from userflow.accounts.models import AdminUser
from userflow.admins.actions import create_admin_user
from userflow.sessions.assurance import REQUIREMENTS, Action

TWO_FACTORS = ("pwd", "otp")
OWN = [
    (operation, Action(row))
    for operation in operations_with_token()
    for row in operation.rows
    if Action(row) in ELSEWHERE
]
# The first of two calls enrolls nothing; the second one carries the proof.
FIRST_CALLS = ("beginSetup", "beginRegistration")
WITH_PROOF = [
    (operation, row)
    for operation, row in OWN
    if REQUIREMENTS[row].needs_proof and not operation.path.endswith(FIRST_CALLS)
]


@dataclass
class Caller:
    """A user with a factor, and a body that fits every operation: fields that one does not know are ignored."""

    token: str
    path: dict[str, str]
    body: dict[str, Any] = field(default_factory=dict)

    def call(self, operation: Any, row: Action, token: str, **proof: Any) -> Any:
        place = operation.path
        for name, value in self.path.items():
            place = place.replace(f"{{{name}}}", value)
        body = {**self.body, **proof}
        if row == Action.CHANGE_OWN_EMAIL:
            body["email"] = f"other-{secrets.token_hex(6)}@example.com"
        return Api(token=token).call(operation.method, with_unknown_ids(place), body)


@pytest.fixture(scope="module")
def own_tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    with django_db_blocker.unblock():
        tenant = build_tenant("own-actions")
        deletion = {"settings": {"account_deletion": "on"}}
        assert tenant.api.patch(f"/uflow/admin/tenants/{tenant.id}/settings", deletion).status_code == 200
        return tenant


def end_user(tenant: TestTenant) -> Caller:
    ann = new_user(tenant)
    token = ann.token()
    ann.enrol_totp(token=token)
    [factor] = Api(token=token).get("/webauthn/factors").json()["factors"]
    path = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "factor_id": factor["id"]}
    return Caller(token, path, {**ann.named_with_client, **fields(ann, token)})


def admin_user(tenant: TestTenant) -> Caller:
    name = f"own-{secrets.token_hex(5)}"
    email = f"{name}@example.com"
    admin, _ = create_admin_user(tenant_id=tenant.id, username=name, email=email, password=PASSWORD)
    token = sign_in_admin(name)["access_token"]
    AdminUser.objects.filter(pk=admin.pk).update(mfa_methods=["totp"])
    other = new_user(tenant)
    return Caller(token, {"user_id": str(admin.pk)}, {"email": email, **fields(other, other.token())})


def fields(person: TestUser, token: str) -> dict[str, Any]:
    enrolling = {"phone_number": some_phone(), "secret": "JBSWY3DPEHPK3PXP", "code": "123456"}
    passkey = {"credential": new_passkey(person, token=strong(token))["credential"]}
    return {**enrolling, **passkey, "name": "Key", "new_password": f"{PASSWORD} again", "password": PASSWORD}


def callers(tenant: TestTenant, path: str) -> Iterator[Caller]:
    if "/admin/" not in path:
        yield end_user(tenant)
    if ("/webauthn/" not in path or "/admin/" in path) and path != "/authmgr/profile/delete":
        yield admin_user(tenant)


def is_old(token: str) -> str:
    return aged(token, 16, amr=TWO_FACTORS)


def has_one_factor(token: str) -> str:
    return aged(token, 0)


@pytest.mark.parametrize(("operation", "row"), OWN, ids=str)
@pytest.mark.parametrize("weak", [is_old, has_one_factor])
def test_own_action_rejects_too_little_proof(own_tenant: TestTenant, operation: Any, row: Action, weak: Any) -> None:
    for caller in callers(own_tenant, operation.path):
        if "{tenant_id}" in operation.path and "tenant_id" not in caller.path:
            continue
        before = digests_of(own_tenant)
        response = caller.call(operation, row, weak(caller.token), current_password=PASSWORD)
        assert (response.status_code, response.json().get("code")) == (401, "insufficient_user_authentication"), (
            response.content
        )
        assert digests_of(own_tenant) == before


@pytest.mark.parametrize(("operation", "row"), WITH_PROOF, ids=str)
@pytest.mark.parametrize("proof", [{}, {"current_password": "wrong"}, {"proof_token": "x" * 43}], ids=str)
def test_own_action_rejects_missing_and_wrong_proof(
    own_tenant: TestTenant, operation: Any, row: Action, proof: Any
) -> None:
    caller = next(callers(own_tenant, operation.path))
    caller.body.pop("code")
    before = Api(token=strong(caller.token)).get("/authmgr/profile").json()
    response = caller.call(operation, row, strong(caller.token), **proof)
    # The general finishRegistration is for users without a factor.
    assert response.status_code in (400, 401, *((409,) if row == Action.FIRST_FACTOR else ())), response.content
    assert Api(token=strong(caller.token)).get("/authmgr/profile").json() == before
