"""What users write about themselves is in no token; what applications rely on is written for users, never by them."""

import json
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jwt
import pytest
from django.db import connections

from tests.openid.pages.visitor import Visitor
from tests.openid.relying_party import Application, register_application
from tests.userflow.invitations.test_invitations import accept, invite, token_of
from tests.userflow.sessions.clients import basic, form
from tests.userflow.transfer.test_over_rest import bring
from tests.world import PASSWORD, Api, TestTenant, User, build_tenant

REGISTER, PROFILE = "/uflow/user/clients/register", "/authmgr/profile"
SETTINGS = "/uflow/admin/tenants/{}/settings"
# A key of app_metadata, a mapped key that no user has, and ids of the former provider.
FORGED = {"auth0_id": "auth0|victim", "plan": "enterprise", "level": 9, "external_id": "auth0|victim"}
BODY = {"metadata": FORGED | {"app_metadata": FORGED}, "app_metadata": FORGED, "external_id": "auth0|victim"}
SCOPE = "openid profile email phone groups roles offline_access"
BY_NAME = json.dumps({place: dict.fromkeys([*FORGED, "app_metadata"]) for place in ("id_token", "userinfo")})


@pytest.fixture(scope="module")
def mapping(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """Return a tenant whose applications get the plan, the level and the external id of a user."""
    with django_db_blocker.unblock():
        own = build_tenant("mapping")
        changes = {"app_metadata_claims": ["plan", "level"], "external_id_claim": True}
        assert own.api.patch(SETTINGS.format(own.id), {"settings": changes}).status_code == 200
    return own


def path_of(tenant: TestTenant, user: User) -> str:
    return f"/uflow/user/enduser/{tenant.id}/{user.id}"


def new_person(tenant: TestTenant) -> User:
    """Return a user of whom an admin has written down the plan."""
    user = tenant.register()
    assert tenant.api.put(path_of(tenant, user), {"app_metadata": {"plan": "free"}}).status_code == 200
    return user


def registration(tenant: TestTenant) -> dict[str, Any]:
    email = f"user-{secrets.token_hex(6)}@example.com"
    return {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email, "password": PASSWORD}


def by_profile(tenant: TestTenant) -> User:
    user = new_person(tenant)
    assert tenant.as_user(user).put(PROFILE, BODY).status_code == 200
    return user


def by_own_record(tenant: TestTenant) -> User:
    user = new_person(tenant)
    assert tenant.as_user(user).put(path_of(tenant, user), BODY).status_code == 200
    return user


def by_record_of_another(tenant: TestTenant) -> User:
    user, attacker = new_person(tenant), tenant.register()
    assert tenant.as_user(attacker).put(path_of(tenant, user), BODY).status_code == 403
    return user


def by_registration(tenant: TestTenant) -> User:
    return tenant.register(**BODY)


def by_registration_with_own_token(tenant: TestTenant) -> User:
    me = tenant.as_user(tenant.register())
    body = registration(tenant)
    response = me.post(REGISTER, body | BODY)
    assert response.status_code == 201, response.content
    return User(response.json()["user_id"], body["email"])


def by_account_page(tenant: TestTenant) -> User:
    user, visitor = new_person(tenant), Visitor(tenant)
    visitor.signs_in(user)
    visitor.opens("account")
    visitor.sends(name="New Name", **{name: json.dumps(value) for name, value in BODY.items()})
    assert visitor.at == "account"
    return user


def by_json_sign_in(tenant: TestTenant) -> User:
    user = new_person(tenant)
    body = {"client_id": str(tenant.client_id), "email": user.email, "password": PASSWORD}
    assert Api().post("/uflow/auth/enduser/login", body | BODY).status_code == 200
    return user


def by_invitation(tenant: TestTenant) -> User:
    invitation = invite(tenant, "end_user")
    done = accept(token_of(invitation), **BODY)
    assert done.status_code == 201, done.content
    return User(done.json()["user_id"], invitation["email"])


def by_import(tenant: TestTenant) -> User:
    user = new_person(tenant)
    # An unused registration would give its address up to the import.
    tenant.sign_in(user)
    role = {"name": f"writer-{secrets.token_hex(4)}", "permissions": ["endusers:write"]}
    assert tenant.api.post("/authmgr/roles", role).status_code == 201
    bound = bring(tenant, {"email": user.email, "roles": [role["name"]]}, on_conflict="update")
    assert bound.json()["updated"] == 1
    row = {"email": user.email, **BODY}
    assert bring(tenant, row, api=tenant.as_user(user), on_conflict="update").status_code == 403
    return user


ROUTES = [
    by_profile,
    by_own_record,
    by_record_of_another,
    by_registration,
    by_registration_with_own_token,
    by_account_page,
    by_json_sign_in,
    by_invitation,
    by_import,
]


def told_about(tenant: TestTenant, user: User) -> dict[str, Any]:
    """Return what each token and response tells an application about the user who has signed in to it."""
    fields: dict[str, Any] = {"type": "confidential", "first_party": True, "audiences": ["https://api.example.com"]}
    app = Application(tenant, register_application(tenant, **fields))
    app.sign_in(user)
    sent = {"grant_type": "authorization_code", "code": app.code(scope=SCOPE, claims=BY_NAME)}
    sent |= {"code_verifier": app.verifier, "redirect_uri": "https://app.example.com/callback"}
    tokens = app.token(headers=basic(app.client), **sent).json()
    access = tokens["access_token"]
    caller = Api(token=access)
    refreshed = app.token(
        headers=basic(app.client), grant_type="refresh_token", refresh_token=tokens["refresh_token"]
    ).json()
    assert "id_token" in tokens
    return {
        "id_token": decoded(tokens["id_token"]),
        "refreshed id_token": decoded(refreshed["id_token"]) if "id_token" in refreshed else {},
        "access_token": decoded(access),
        "refreshed access_token": decoded(refreshed["access_token"]),
        "userinfo": caller.get(f"{app.issuer}/userinfo").json(),
        "introspection": Api()
        .post(f"{app.issuer}/introspect", **form(token=refreshed["access_token"]), headers=basic(app.client))
        .json(),
        "own token": decoded(tenant.sign_in(user)["access_token"]),
    }


def decoded(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


@pytest.mark.parametrize("route", ROUTES)
def test_users_write_nothing_into_tokens(mapping: TestTenant, route: Callable[[TestTenant], User]) -> None:
    user = route(mapping)
    told = told_about(mapping, user)
    assert told["introspection"]["active"] is True
    for place, claims in told.items():
        assert claims.get("plan") in (None, "free"), place
        assert not {"auth0_id", "level", "external_id", "app_metadata", "metadata"} & claims.keys(), place
    record = mapping.api.get(path_of(mapping, user)).json()
    assert record["external_id"] is None
    assert record["app_metadata"] in ({}, {"plan": "free"})


def test_admins_write_what_tokens_carry(mapping: TestTenant) -> None:
    user, own = mapping.register(), f"auth0|{secrets.token_hex(6)}"
    body = {"app_metadata": {"plan": "enterprise"}, "external_id": own, "metadata": {"plan": "forged"}}
    assert mapping.api.put(path_of(mapping, user), body).status_code == 200
    told = told_about(mapping, user)
    for place in ("id_token", "userinfo"):
        assert (told[place]["plan"], told[place]["external_id"]) == ("enterprise", own)
    assert "plan" not in told["access_token"]


def test_users_read_what_is_written_for_them(mapping: TestTenant) -> None:
    user, own = mapping.register(), f"crm-{secrets.token_hex(6)}"
    mapping.api.put(path_of(mapping, user), {"app_metadata": {"plan": "pro"}, "external_id": own})
    me = mapping.as_user(user)
    visitor = Visitor(mapping)
    visitor.signs_in(user)
    downloaded = json.loads(visitor.opens("account/data").content)["profile"]
    for record in (me.get(PROFILE).json(), me.get(path_of(mapping, user)).json(), downloaded):
        assert (record["app_metadata"], record["external_id"]) == ({"plan": "pro"}, own)
    # The record can be sent back as it was read, and null removes nothing.
    assert me.put(PROFILE, me.get(PROFILE).json() | {"external_id": None, "app_metadata": {}}).status_code == 200
    assert me.get(PROFILE).json()["external_id"] == own


def test_callers_without_permission_write_no_external_id(mapping: TestTenant) -> None:
    user = mapping.register()
    fields = {"type": "confidential", "scopes": ["endusers:read"]}
    client = mapping.api.post(f"/clientms/tenants/{mapping.id}/clients", {"name": "Reader", **fields}).json()
    sent = form(grant_type="client_credentials", client_id=client["client_id"], client_secret=client["client_secret"])
    reader = Api(token=Api().post("/authmgr/token", **sent).json()["access_token"])
    assert reader.put(path_of(mapping, user), {"external_id": "x"}).status_code == 403
    stored = mapping.api.post(REGISTER, registration(mapping) | {"external_id": "of-admin", "app_metadata": {"a": 1}})
    record = mapping.api.get(f"/uflow/user/enduser/{mapping.id}/{stored.json()['user_id']}").json()
    assert (record["external_id"], record["app_metadata"]) == ("of-admin", {"a": 1})
    body = registration(mapping)
    created = reader.post(REGISTER, body | {"external_id": "of-reader", "app_metadata": {"a": 1}})
    assert created.status_code == 201
    record = mapping.api.get(f"/uflow/user/enduser/{mapping.id}/{created.json()['user_id']}").json()
    assert (record["external_id"], record["app_metadata"]) == (None, {})


def test_external_id_is_unique_in_its_tenant_only(tenant: TestTenant, other_tenant: TestTenant) -> None:
    same = f"crm-{secrets.token_hex(6)}"
    for own in (tenant, other_tenant):
        user, second = own.register(), own.register()
        assert own.api.put(path_of(own, user), {"external_id": same}).status_code == 200
        # Of the same user, and in another case.
        assert own.api.put(path_of(own, user), {"external_id": same}).status_code == 200
        assert own.api.put(path_of(own, second), {"external_id": same.upper()}).status_code == 200
        taken = own.api.put(path_of(own, second), {"external_id": same})
        assert (taken.status_code, taken.json()["code"]) == (409, "external_id_taken")
        taken = own.api.post(REGISTER, registration(own) | {"external_id": same})
        assert (taken.status_code, taken.json()["code"]) == (409, "external_id_taken")
        assert own.api.put(path_of(own, user), {"external_id": None}).status_code == 200
        assert own.api.put(path_of(own, second), {"external_id": same}).status_code == 200


@pytest.mark.parametrize("how", ["create", "update"])
def test_race_for_an_external_id_has_one_winner(tenant: TestTenant, how: str) -> None:
    same = f"race-{secrets.token_hex(6)}"
    users = [tenant.register() for _ in range(8)] if how == "update" else []

    def claim(number: int) -> tuple[int, str | None]:
        api = Api(token=tenant.api.token)
        try:
            if users:
                response = api.put(path_of(tenant, users[number]), {"external_id": same})
            else:
                response = api.post(REGISTER, registration(tenant) | {"external_id": same})
            return response.status_code, response.json().get("code")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(claim, range(8)), key=str)
    assert answers == [(200 if users else 201, None)] + [(409, "external_id_taken")] * 7
    found = tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id), "external_id": same}).json()
    assert len(found["users"]) == 1


def test_list_finds_the_exact_external_id(tenant: TestTenant, other_tenant: TestTenant) -> None:
    own = f"Crm_{secrets.token_hex(6)}%"
    user = tenant.register()
    tenant.api.put(path_of(tenant, user), {"external_id": own})

    def listed(api: Api, of: TestTenant, wanted: str) -> list[str]:
        lists: list[Mapping[str, Any]] = [
            api.get("/uflow/user/enduser/list", {"tenant_id": str(of.id), "external_id": wanted}).json(),
            api.post("/uflow/user/enduser/list", {"tenant_id": str(of.id), "external_id": wanted}).json(),
            api.post("/uflow/admin/enduser/list", {"tenant_id": str(of.id), "external_id": wanted}).json(),
        ]
        ids = [[row["id"] for row in page["users"]] for page in lists]
        assert ids[0] == ids[1] == ids[2]
        return ids[0]

    assert listed(tenant.api, tenant, own) == [str(user.id)]
    for other in (own.lower(), own[:-1], "%", own + " "):
        assert listed(tenant.api, tenant, other) == []
    assert listed(other_tenant.api, other_tenant, own) == []
