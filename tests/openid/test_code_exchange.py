"""Codes at the token endpoint: what they are bound to, single use, reuse, and the tokens."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jwt
import pytest
from django.conf import settings
from django.utils.timezone import now

from identity_platform.crypto import hash_token
from openid.authorization.consents import grant_consent
from openid.models import AuthorizationCode, Consent
from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.openid.dpop_keys import DpopKey
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.openid.relying_party import CALLBACK, Application, query_of, register_application
from tests.parallel import run_concurrently
from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import Api, TestTenant, User, capture_statements
from userflow.accounts.session_models import EndUserSession


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register()


def application(tenant: TestTenant, user: User, **fields: Any) -> Application:
    app = Application(tenant, register_application(tenant, **{"first_party": True, **fields}))
    app.sign_in(user)
    return app


@pytest.fixture
def app(tenant: TestTenant, user: User) -> Application:
    return application(tenant, user)


def claims_of(app: Application, token: str, audience: str | None = None) -> dict[str, Any]:
    """Return the claims of a token, verified with the tenant's keys."""
    keys = jwt.PyJWKSet.from_dict(Api().get(f"{app.issuer}/jwks").json())
    header = jwt.get_unverified_header(token)
    issuer = f"{settings.BASE_URL}{app.issuer}"
    algorithms = [header["alg"]]
    return jwt.decode(token, keys[header["kid"]], algorithms=algorithms, audience=audience, issuer=issuer)


def error_of(response: Any) -> str:
    assert response.status_code in (400, 401), response.content
    assert response.headers["Cache-Control"] == "no-store"
    return str(response.json()["error"])


def is_active(app: Application, tokens: dict[str, Any]) -> bool:
    sid = jwt.decode(tokens["access_token"], options={"verify_signature": False})["sid"]
    with in_tenant(app.tenant.id):
        return EndUserSession.objects.filter(pk=sid, ended_at=None).exists()


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_code_gives_id_access_and_refresh_token(app: Application, user: User) -> None:
    location = app.authorize(scope="openid email profile").headers["Location"]
    fields = query_of(location)
    assert location.startswith(f"{CALLBACK}?")
    assert set(fields) == {"code", "state", "iss"}
    response = app.exchange(fields["code"])
    assert response.status_code == 200, response.content
    assert response.headers["Cache-Control"] == "no-store"
    tokens = response.json()
    assert set(tokens) == {"access_token", "token_type", "expires_in", "refresh_token", "id_token", "scope"}
    assert (tokens["token_type"], tokens["scope"]) == ("Bearer", "openid email profile")
    identity = claims_of(app, tokens["id_token"], app.client["client_id"])
    assert (identity["sub"], identity["nonce"], identity["azp"]) == (str(user.id), "a nonce", app.client["client_id"])
    assert (identity["email"], identity["email_verified"], identity["name"]) == (user.email, False, "Some One")
    assert (identity["amr"], identity["acr"]) == (["pwd"], "aal1")
    access = claims_of(app, tokens["access_token"], f"{settings.BASE_URL}{app.issuer}/userinfo")
    assert access["sid"] == identity["sid"]
    assert jwt.get_unverified_header(tokens["access_token"])["typ"] == "at+jwt"


def test_id_token_has_only_claims_of_granted_scopes(app: Application) -> None:
    identity = claims_of(app, app.tokens()["id_token"], app.client["client_id"])
    assert not {"email", "name", "groups", "roles", "phone_number"} & set(identity)
    claims = '{"id_token": {"email": null}, "userinfo": {"name": {"essential": true}}}'
    identity = claims_of(app, app.tokens(claims=claims)["id_token"], app.client["client_id"])
    assert "email" in identity
    assert "name" not in identity


def test_request_without_openid_gets_no_id_token(app: Application) -> None:
    assert "id_token" not in app.tokens(scope="email")
    assert not {"id_token", "scope"} & set(app.tokens(scope=None))


def test_id_token_is_signed_with_the_clients_algorithm(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, id_token_signed_response_alg="RS256")
    token = app.tokens()["id_token"]
    assert jwt.get_unverified_header(token)["alg"] == "RS256"
    assert claims_of(app, token, app.client["client_id"])["sub"] == str(user.id)


def test_refresh_token_needs_offline_access_or_first_party(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, first_party=False)
    with in_tenant(tenant.id):
        scopes = ("openid", "offline_access")
        grant_consent(user_id=user.id, client_id=app.client["client_id"], scopes=scopes)
    assert "refresh_token" not in app.tokens()
    assert "refresh_token" in app.tokens(scope="openid offline_access")
    no_refresh = application(tenant, user, grant_types=["authorization_code"])
    assert "refresh_token" not in no_refresh.tokens(scope="openid offline_access")


def test_access_token_is_for_requested_resources(tenant: TestTenant, user: User) -> None:
    audiences = ["https://orders.example.com", "https://stock.example.com", "identity-api"]
    app = application(tenant, user, audiences=audiences)

    def audience(token: str) -> Any:
        return jwt.decode(token, options={"verify_signature": False})["aud"]

    assert audience(app.tokens()["access_token"]) == audiences[0]
    assert audience(app.tokens(resource=audiences[:2])["access_token"]) == audiences[:2]
    narrowed = app.exchange(app.code(resource=audiences[:2]), resource=audiences[1])
    assert audience(narrowed.json()["access_token"]) == audiences[1]
    assert error_of(app.exchange(app.code(resource=audiences[0]), resource=audiences[1])) == "invalid_target"


def test_client_sets_lifetime_of_access_tokens(tenant: TestTenant, user: User) -> None:
    assert application(tenant, user, access_token_seconds=120).tokens()["expires_in"] == 120


def test_tenant_shortens_access_tokens_of_clients(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, access_token_seconds=600)
    tokens = app.tokens()
    assert tokens["expires_in"] == 600
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(path, {"settings": {"access_token_seconds": 300}}).status_code == 200
    try:
        assert app.tokens()["expires_in"] == 300
        refreshed = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).json()
        assert refreshed["expires_in"] == 300
    finally:
        tenant.api.patch(path, {"settings": {"access_token_seconds": None}})


def test_refresh_returns_id_token_of_the_same_sign_in(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, id_token_signed_response_alg="RS256")
    tokens = app.tokens(scope="openid email")
    first = claims_of(app, tokens["id_token"], app.client["client_id"])
    refreshed = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).json()
    again = claims_of(app, refreshed["id_token"], app.client["client_id"])
    same = ("iss", "sub", "aud", "azp", "auth_time", "acr", "amr", "sid")
    assert [again[name] for name in same] == [first[name] for name in same]
    assert "nonce" not in again
    assert jwt.get_unverified_header(refreshed["id_token"])["alg"] == "RS256"


def test_refresh_without_openid_returns_no_id_token(app: Application) -> None:
    tokens = app.tokens(scope="openid email")
    sent = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "scope": "email"}
    assert "id_token" not in app.token(**sent).json()


def test_code_flow_needs_few_statements(app: Application) -> None:
    app.tokens()
    with capture_statements() as authorizing:
        code = app.code()
    with capture_statements() as exchanging:
        assert app.exchange(code).status_code == 200
    assert (authorizing.counts, exchanging.counts) == ((0, 3), (0, 3))


# --- binding ---------------------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"code_verifier": None}, "invalid_grant"),
    ({"code_verifier": "x" * 43}, "invalid_grant"),
    ({"code_verifier": "short"}, "invalid_grant"),
    ({"redirect_uri": None}, "invalid_grant"),
    ({"redirect_uri": f"{CALLBACK}/other"}, "invalid_grant"),
]


@pytest.mark.parametrize(("changed", "error"), WRONG, ids=str)
def test_wrong_exchange_uses_the_code_up(app: Application, changed: dict[str, Any], error: str) -> None:
    code = app.code()
    assert error_of(app.exchange(code, **changed)) == error
    assert error_of(app.exchange(code)) == "invalid_grant"


def test_code_is_useless_to_another_client(app: Application, tenant: TestTenant, user: User) -> None:
    code = app.code()
    thief = application(tenant, user)
    thief.verifier = app.verifier
    assert error_of(thief.exchange(code)) == "invalid_grant"
    assert app.exchange(code).status_code == 200


def test_code_is_useless_at_another_tenant(app: Application, other_tenant: TestTenant) -> None:
    code = app.code()
    elsewhere = Application(other_tenant, register_application(other_tenant), verifier=app.verifier)
    assert error_of(elsewhere.exchange(code)) == "invalid_grant"
    elsewhere.client = app.client
    assert error_of(elsewhere.exchange(code)) == "invalid_client"
    assert app.exchange(code).status_code == 200


def test_expired_code_is_rejected(app: Application) -> None:
    code = app.code()
    with in_tenant(app.tenant.id):
        found = AuthorizationCode.objects.filter(digest=hash_token(code))
        assert found.get().expires_at - found.get().created_at < timedelta(seconds=61)
        found.update(expires_at=now())
    assert error_of(app.exchange(code)) == "invalid_grant"


def test_code_of_an_ended_session_is_rejected(app: Application, user: User) -> None:
    code = app.code()
    with in_tenant(app.tenant.id):
        EndUserSession.objects.filter(user_id=user.id).update(ended_at=now())
    assert error_of(app.exchange(code)) == "invalid_grant"


def test_code_outlives_a_sign_in_again(tenant: TestTenant, user: User) -> None:
    visitor = Visitor(tenant)
    visitor.signs_in(user)
    first = begin(visitor)
    code = code_of(visitor.page)
    begin(visitor, prompt="login")
    code_of(visitor.sends(email=user.email, password=user.password))
    assert first.exchange(code).status_code == 200


def test_code_ends_with_the_consent(tenant: TestTenant, user: User) -> None:
    visitor = Visitor(tenant)
    visitor.signs_in(user)
    app = Application(tenant, register_application(tenant), browser=Api(client=visitor.client))
    with in_tenant(tenant.id):
        grant_consent(user_id=user.id, client_id=app.client["client_id"], scopes=("openid", "email"))
    code, tokens = app.code(), app.tokens()
    visitor.opens("account/applications")
    visitor.sends(client=app.client["client_id"])
    assert error_of(app.exchange(code)) == "invalid_grant"
    assert not is_active(app, tokens)


def test_code_needs_the_consent_at_its_exchange(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, first_party=False)
    consented = {"user_id": user.id, "client_id": app.client["client_id"]}
    with in_tenant(tenant.id):
        grant_consent(**consented, scopes=("openid", "email"))
    codes = [app.code(scope="openid email") for _ in range(3)]
    assert app.exchange(codes[0]).status_code == 200
    with in_tenant(tenant.id):
        Consent.objects.filter(**consented).update(scopes=["openid"])
    assert error_of(app.exchange(codes[1])) == "invalid_grant"
    with in_tenant(tenant.id):
        Consent.objects.filter(**consented).delete()
    assert error_of(app.exchange(codes[2])) == "invalid_grant"


def test_code_ends_with_the_deactivation_of_its_client(app: Application, tenant: TestTenant) -> None:
    place = f"/clientms/tenants/{tenant.id}/clients/{app.client['client_id']}"
    code = app.code()
    for change in ("deactivate", "activate"):
        assert tenant.api.patch(f"{place}/{change}").status_code == 200
    assert error_of(app.exchange(code)) == "invalid_grant"


def test_code_gives_what_the_client_may_still_have(tenant: TestTenant, user: User) -> None:
    first, second = "https://api.example.com", "https://more.example.com"
    app = application(tenant, user, type="confidential", scopes=["services:read"], audiences=[first, second])
    headers, own = basic(app.client), app.client["client_id"]
    codes = [app.code(scope="openid services:read", resource=[first, second]) for _ in range(3)]
    change_client(own, scopes=[], audiences=[second])
    tokens = app.exchange(codes[0], headers=headers).json()
    claims = claims_of(app, tokens["access_token"], second)
    assert (tokens["scope"], claims["scope"], claims["aud"]) == ("openid", "openid", second)
    assert "id_token" in tokens
    assert error_of(app.exchange(codes[1], headers=headers, resource=first)) == "invalid_target"
    change_client(own, audiences=[])
    assert error_of(app.exchange(codes[2], headers=headers)) == "invalid_target"


def test_code_is_stored_as_a_hash(app: Application) -> None:
    code = app.code()
    assert len(code) >= 43
    with in_tenant(app.tenant.id):
        row = AuthorizationCode.objects.get(digest=hash_token(code))
    assert code not in str(row.__dict__)


# --- DPoP ------------------------------------------------------------------------------------------------------------


def by_key(app: Application, key: DpopKey) -> dict[str, str]:
    return {"DPoP": key.proof("POST", f"{app.issuer}/token")}


def test_proof_binds_tokens_to_its_key(app: Application) -> None:
    key, own = DpopKey(), {"client_id": app.client["client_id"]}
    tokens = app.exchange(app.code(), headers=by_key(app, key), **own).json()
    assert tokens["token_type"] == "DPoP"
    assert jwt.decode(tokens["access_token"], options={"verify_signature": False})["cnf"] == {"jkt": key.jkt}
    sent = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], **own}
    assert error_of(app.token(**sent)) == "invalid_grant"
    assert error_of(app.token(headers=by_key(app, DpopKey()), **sent)) == "invalid_grant"
    assert app.token(headers=by_key(app, key), **sent).json()["token_type"] == "DPoP"


def test_code_is_bound_to_the_requested_key(app: Application) -> None:
    key, own = DpopKey(), {"client_id": app.client["client_id"]}
    assert error_of(app.exchange(app.code(dpop_jkt=key.jkt))) == "invalid_grant"
    another = app.exchange(app.code(dpop_jkt=key.jkt), headers=by_key(app, DpopKey()), **own)
    assert error_of(another) == "invalid_grant"
    assert app.exchange(app.code(dpop_jkt=key.jkt), headers=by_key(app, key), **own).status_code == 200


def test_client_with_bound_tokens_must_send_a_proof(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, dpop_bound_access_tokens=True)
    code = app.code()
    assert error_of(app.exchange(code)) == "invalid_dpop_proof"
    own = {"client_id": app.client["client_id"]}
    assert app.exchange(code, headers=by_key(app, DpopKey()), **own).status_code == 200
    broken = app.exchange(app.code(), headers={"DPoP": "x"}, **own)
    assert error_of(broken) == "invalid_dpop_proof"


@pytest.mark.parametrize("path", ["/t/{}/token", "/authmgr/token"])
def test_no_token_endpoint_issues_such_clients_unbound_tokens(path: str, tenant: TestTenant, user: User) -> None:
    path = path.format(tenant.slug)
    bound = {"scopes": ["services:read"], "dpop_bound_access_tokens": True}
    app = application(tenant, user, type="confidential", **bound)
    headers, key = basic(app.client), DpopKey()
    assert error_of(Api().post(path, **form(grant_type="client_credentials"), headers=headers)) == "invalid_dpop_proof"
    tokens = app.exchange(app.code(), headers={**headers, **by_key(app, key)}).json()
    sent = form(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert error_of(Api().post(path, **sent, headers=headers)) == "invalid_dpop_proof"


def test_session_from_before_the_requirement_is_not_refreshed(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user)
    own = {"client_id": app.client["client_id"]}
    sent = {"grant_type": "refresh_token", "refresh_token": app.tokens()["refresh_token"]}
    change_client(own["client_id"], dpop_bound_access_tokens=True)
    assert error_of(Api().post("/authmgr/token", **form(**sent))) == "invalid_dpop_proof"
    assert error_of(Api().post("/authmgr/token", **form(**sent, **own))) == "invalid_dpop_proof"
    assert error_of(app.token(**sent)) == "invalid_dpop_proof"
    assert error_of(app.token(headers=by_key(app, DpopKey()), **sent, **own)) == "invalid_grant"


def test_clients_own_token_is_bound_to_its_key(tenant: TestTenant) -> None:
    app = Application(tenant, register_application(tenant, type="confidential", scopes=["services:read"]))
    key = DpopKey()
    headers = {**basic(app.client), **by_key(app, key)}
    token = app.token(headers=headers, grant_type="client_credentials").json()["access_token"]
    path = "/exsvc/api/v1/services"
    assert Api(token=token).get(path).status_code == 401
    assert Api().get(path, headers=key.headers("GET", path, token)).status_code == 200


# --- reuse -----------------------------------------------------------------------------------------------------------


def test_reused_code_ends_what_was_issued(app: Application, user: User, tenant: TestTenant) -> None:
    code = app.code()
    tokens, bystander = app.exchange(code).json(), app.tokens()
    assert error_of(app.exchange(code)) == "invalid_grant"
    assert (is_active(app, tokens), is_active(app, bystander)) == (False, True)
    refreshed = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert error_of(refreshed) == "invalid_grant"
    events = tenant.api.get("/uflow/admin/audit", {"action": "authorization_code.reused", "limit": 100}).json()
    assert str(user.id) in str(events)


def test_reuse_by_another_client_ends_nothing(app: Application, tenant: TestTenant, user: User) -> None:
    code = app.code()
    tokens = app.exchange(code).json()
    assert error_of(application(tenant, user).exchange(code)) == "invalid_grant"
    assert is_active(app, tokens)


def test_concurrent_exchanges_have_one_winner(app: Application) -> None:
    code = app.code()
    responses = run_concurrently([lambda: app.exchange(code) for _ in range(6)])
    assert sorted(response.status_code for response in responses) == [200] + [400] * 5
    won = next(response for response in responses if response.status_code == 200)
    assert not is_active(app, won.json())


# --- clients ---------------------------------------------------------------------------------------------------------


def test_confidential_client_must_authenticate(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, type="confidential", scopes=["services:read"])
    assert error_of(app.exchange(app.code())) == "invalid_client"
    assert error_of(app.exchange(app.code(), client_secret="wrong")) == "invalid_client"
    assert app.exchange(app.code(), client_secret=app.client["client_secret"]).status_code == 200
    assert app.exchange(app.code(), headers=basic(app.client)).status_code == 200
    both = app.exchange(app.code(), headers=basic(app.client), client_secret=app.client["client_secret"])
    assert error_of(both) == "invalid_request"


def test_client_uses_its_registered_method_only(tenant: TestTenant, user: User) -> None:
    fields = {"type": "confidential", "token_endpoint_auth_method": "client_secret_basic"}
    app = application(tenant, user, **fields)
    assert error_of(app.exchange(app.code(), client_secret=app.client["client_secret"])) == "invalid_client"
    assert app.exchange(app.code(), headers=basic(app.client)).status_code == 200


def test_grant_type_must_be_registered(tenant: TestTenant, user: User) -> None:
    app = application(tenant, user, grant_types=["client_credentials"])
    assert query_of(app.authorize().headers["Location"])["error"] == "unauthorized_client"
    assert error_of(app.token(grant_type="authorization_code", code="x")) == "unauthorized_client"
    assert error_of(app.token(grant_type="password")) == "unsupported_grant_type"
    assert error_of(app.token(grant_type='"\\é')) == "unsupported_grant_type"


def test_client_credentials_of_a_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    app = Application(tenant, register_application(tenant, type="confidential", scopes=["services:read"]))
    response = app.token(headers=basic(app.client), grant_type="client_credentials")
    assert claims_of(app, response.json()["access_token"], "identity-api")["scope"] == "services:read"
    elsewhere = Application(other_tenant, app.client)
    assert error_of(elsewhere.token(headers=basic(app.client), grant_type="client_credentials")) == "invalid_client"


def test_clients_own_tokens_end_with_the_platforms_audience(tenant: TestTenant) -> None:
    other = "https://orders.example.com"
    client = make_client(tenant, scopes=["services:read"], audiences=["identity-api", other])
    headers, sent = basic(client), form(grant_type="client_credentials")
    token = Api().post("/authmgr/token", **sent, headers=headers).json()["access_token"]
    read = f"/clientms/tenants/{tenant.id}/clients/{client['id']}"
    assert Api(token=token).get("/authmgr/validate").status_code == 200
    assert tenant.api.patch(read, {"audiences": [other]}).status_code == 200
    assert Api(token=token).get("/authmgr/validate").status_code == 401
    assert error_of(Api().post("/authmgr/token", **sent, headers=headers)) == "invalid_target"
    # Without a list a client's own tokens are for the platform, as ever.
    assert tenant.api.patch(read, {"audiences": []}).status_code == 200
    assert Api(token=token).get("/authmgr/validate").status_code == 200


def test_clients_own_token_is_for_its_resources(tenant: TestTenant) -> None:
    first, second = "https://api.example.com", "https://more.example.com"
    fields = {"type": "confidential", "scopes": ["services:read"], "grant_types": ["client_credentials"]}
    app = Application(tenant, register_application(tenant, audiences=[first, second, "identity-api"], **fields))
    sent = {"headers": basic(app.client), "grant_type": "client_credentials"}

    def audience(**resources: Any) -> Any:
        response = app.token(**sent, **resources)
        assert response.status_code == 200, response.content
        return jwt.decode(response.json()["access_token"], options={"verify_signature": False})["aud"]

    assert audience() == first
    assert audience(resource="identity-api") == "identity-api"
    assert audience(resource=[first, "identity-api"]) == [first, "identity-api"]
    assert error_of(app.token(**sent, resource="https://other.example.com")) == "invalid_target"
    change_client(app.client["client_id"], audiences=[second, first])
    assert audience() == second
    assert error_of(app.token(**sent, resource="identity-api")) == "invalid_target"
    change_client(app.client["client_id"], audiences=[])
    assert audience() == "identity-api"
    assert error_of(app.token(**sent, resource=first)) == "invalid_target"


def test_api_rejects_clients_token_for_another_resource(tenant: TestTenant) -> None:
    fields = {"type": "confidential", "scopes": ["services:read"], "audiences": ["https://api.example.com"]}
    app = Application(tenant, register_application(tenant, **fields))
    token = app.token(headers=basic(app.client), grant_type="client_credentials").json()["access_token"]
    assert Api(token=token).get("/exsvc/api/v1/services").status_code == 401
    introspected = Api().post(f"{app.issuer}/introspect", **form(token=token), headers=basic(app.client)).json()
    assert (introspected["active"], introspected["aud"]) == (True, "https://api.example.com")
    assert Api().post(f"{app.issuer}/revoke", **form(token=token), headers=basic(app.client)).status_code == 200
    introspected = Api().post(f"{app.issuer}/introspect", **form(token=token), headers=basic(app.client)).json()
    assert introspected == {"active": False}


# --- refresh ---------------------------------------------------------------------------------------------------------


def test_refresh_token_of_another_tenant_is_rejected(app: Application, other_tenant: TestTenant) -> None:
    tokens = app.tokens()
    elsewhere = Application(other_tenant, register_application(other_tenant))
    refused = elsewhere.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert error_of(refused) == "invalid_grant"
    assert app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).status_code == 200


def test_suspended_tenant_issues_no_tokens(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    own = new_tenant()
    app = application(own, own.register())
    code, tokens = app.code(), app.tokens()
    operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": "suspended"})
    refreshed = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    for response, status, error in (
        (app.exchange(code), 403, "unauthorized_client"),
        (refreshed, 400, "invalid_grant"),
    ):
        body = response.json()
        assert (response.status_code, body["error"], body["code"]) == (status, error, "tenant_suspended")
    assert query_of(app.authorize().headers["Location"])["error"] == "access_denied"
