"""Sign-in by JSON gives a client the whole account of its user, so only the tenant's own applications may use it."""

from typing import Any

import pytest

from tests.mfa.people import new_user
from tests.world import PASSWORD, Api, TestTenant, User

LOGIN = "/uflow/auth/enduser/login"


def new_client(tenant: TestTenant, **fields: Any) -> dict[str, Any]:
    body = {"name": "Shop", "type": "public", **fields}
    response = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body)
    assert response.status_code == 201, response.content
    return dict(response.json())


def change(tenant: TestTenant, client: dict[str, Any], **fields: Any) -> None:
    response = tenant.api.patch(f"/clientms/tenants/{tenant.id}/clients/{client['id']}", fields)
    assert response.status_code == 200, response.content


def login(person: User, client: dict[str, Any], **fields: Any) -> Any:
    body = {"client_id": client["id"], "email": person.email, "password": PASSWORD, **fields}
    return Api().post(LOGIN, body)


def refresh(client: dict[str, Any], tokens: dict[str, Any]) -> Any:
    form = f"grant_type=refresh_token&refresh_token={tokens['refresh_token']}&client_id={client['id']}"
    return Api().call("POST", "/authmgr/token", raw=form, content_type="application/x-www-form-urlencoded")


@pytest.fixture
def ann(tenant: TestTenant) -> User:
    return tenant.register()


@pytest.mark.parametrize(
    "fields",
    [
        {"first_party": False, "grant_types": ["authorization_code"], "require_par": True},
        {"first_party": True, "direct_sign_in": False},
    ],
    ids=["third-party", "deactivated"],
)
def test_login_is_rejected_before_password(tenant: TestTenant, ann: User, fields: dict[str, Any]) -> None:
    client = new_client(tenant, **fields)
    answers = [
        login(ann, client),
        login(ann, client, password="wrong password 1"),
        login(User(ann.id, "no@x.example"), client),
    ]
    assert {answer.status_code for answer in answers} == {403}
    assert {answer.json()["code"] for answer in answers} == {"direct_sign_in_disabled"}
    assert login(ann, {"id": str(tenant.client_id)}).status_code == 200


def test_confidential_client_authenticates_before_it_learns_more(tenant: TestTenant, ann: User) -> None:
    client = new_client(tenant, type="confidential")
    assert login(ann, client, client_secret="wrong").status_code == 401
    assert login(ann, client, client_secret=client["client_secret"]).status_code == 403


def test_first_party_client_signs_in_by_default(tenant: TestTenant, ann: User) -> None:
    client = new_client(tenant, first_party=True)
    assert client["direct_sign_in"] is True
    assert login(ann, client).status_code == 200


@pytest.mark.parametrize("withdrawn", [{"first_party": False}, {"direct_sign_in": False}], ids=str)
def test_withdrawal_ends_sessions_for_good(tenant: TestTenant, ann: User, withdrawn: dict[str, Any]) -> None:
    client = new_client(tenant, first_party=True)
    tokens = login(ann, client).json()
    elsewhere = tenant.as_user(ann)
    change(tenant, client, **withdrawn)
    assert Api(token=tokens["access_token"]).get("/authmgr/profile").status_code == 401
    assert refresh(client, tokens).json()["error"] == "invalid_grant"
    change(tenant, client, **dict.fromkeys(withdrawn, True))
    assert Api(token=tokens["access_token"]).get("/authmgr/profile").status_code == 401
    assert refresh(client, tokens).json()["error"] == "invalid_grant"
    assert elsewhere.get("/authmgr/profile").status_code == 200


def test_second_step_is_rejected_after_withdrawal(tenant: TestTenant) -> None:
    client = new_client(tenant, first_party=True)
    person = new_user(tenant).enrol_totp()
    waiting = login(User(person.id, person.email), client).json()
    assert waiting["mfa_required"]
    change(tenant, client, direct_sign_in=False)
    body = {**person.name, "mfa_token": waiting["mfa_token"], "backup_code": person.backup_codes.pop()}
    rejected = Api().post("/webauthn/totp/verifyLogin", body)
    assert (rejected.status_code, rejected.json()["code"]) == (403, "direct_sign_in_disabled")
    assert "access_token" not in rejected.json()


def test_another_tenants_admin_changes_nothing(tenant: TestTenant, other_tenant: TestTenant, ann: User) -> None:
    client = new_client(tenant, first_party=True)
    path = f"/clientms/tenants/{other_tenant.id}/clients/{client['id']}"
    assert other_tenant.api.patch(path, {"direct_sign_in": False}).status_code == 404
    assert login(ann, client).status_code == 200
