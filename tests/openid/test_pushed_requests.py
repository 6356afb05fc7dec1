"""Pushed authorization requests (RFC 9126): finished once, of one client, and clients that have to push."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test.utils import override_settings
from django.utils.timezone import now
from pytest_django.fixtures import Settings

from openid.models import AuthorizationRequest
from tenants.entering.context import in_tenant
from tests.openid.dpop_keys import DpopKey
from tests.openid.pages.visitor import Visitor, code_of
from tests.openid.relying_party import Application, page_of, query_of, register_application
from tests.parallel import run_concurrently
from tests.userflow.sessions.clients import FORM, basic
from tests.world import PASSWORD, Api, TestTenant, User


@pytest.fixture
def app(tenant: TestTenant) -> Application:
    app = Application(tenant, register_application(tenant, first_party=True))
    app.sign_in(tenant.register())
    return app


def push(app: Application, headers: dict[str, str] | None = None, **changed: Any) -> Any:
    raw = urlencode(app.parameters(**changed), doseq=True).encode()
    return Api().post(f"{app.issuer}/par", raw=raw, content_type=FORM, headers=headers)


def pushed(app: Application, **changed: Any) -> str:
    response = push(app, **changed)
    assert response.status_code == 201, response.content
    assert response.headers["Cache-Control"] == "no-store"
    assert response.json()["expires_in"] == 90
    return str(response.json()["request_uri"])


def bring(app: Application, request_uri: str, client_id: str | None = None) -> Any:
    query = urlencode({"client_id": client_id or app.client["client_id"], "request_uri": request_uri})
    return app.browser.get(f"{app.issuer}/authorize?{query}")


def test_pushed_request_gives_a_code_once(app: Application) -> None:
    request_uri = pushed(app, scope="openid email")
    fields = query_of(bring(app, request_uri).headers["Location"])
    assert fields["state"] == "a state"
    assert app.exchange(fields["code"]).json()["scope"] == "openid email"
    assert bring(app, request_uri).status_code == 400


def signs_in(visitor: Visitor, user: User) -> Any:
    """Enter address and password at the sign-in page that is open."""
    assert visitor.at == "signin", visitor.text
    return visitor.sends(email=user.email, password=PASSWORD)


def opens(visitor: Visitor, app: Application, request_uri: str) -> None:
    query = urlencode({"client_id": app.client["client_id"], "request_uri": request_uri})
    visitor.opens(f"authorize?{query}")


def test_pushed_request_can_be_opened_again_until_it_is_finished(app: Application) -> None:
    visitor, user, request_uri = Visitor(app.tenant), app.tenant.register(), pushed(app)
    opens(visitor, app, request_uri)
    other_tab = replace(visitor)
    other_browser = Visitor(app.tenant)
    # A reload, Back, and the preview of a link.
    for again in (visitor, other_tab, other_browser):
        opens(again, app, request_uri)
    assert code_of(signs_in(visitor, user))
    opens(visitor, app, request_uri)
    assert visitor.page.status_code == 400
    # What other tabs have begun with it has ended too.
    assert other_browser.sends(email=user.email, password=user.password).status_code == 400
    other_tab.opens(f"continue?{other_tab.query}")
    assert other_tab.page.status_code == 400


def test_opened_request_outlives_the_pushed_one(app: Application) -> None:
    visitor, user, request_uri = Visitor(app.tenant), app.tenant.register(), pushed(app)
    opens(visitor, app, request_uri)
    with in_tenant(app.tenant.id):
        AuthorizationRequest.objects.filter(pushed=True, client_id=app.client["client_id"]).update(expires_at=now())
    opens(other := Visitor(app.tenant), app, request_uri)
    assert other.page.status_code == 400
    assert code_of(signs_in(visitor, user))


def test_denied_request_is_finished(tenant: TestTenant) -> None:
    app = Application(tenant, register_application(tenant))
    visitor, request_uri = Visitor(tenant), pushed(app)
    opens(visitor, app, request_uri)
    signs_in(visitor, tenant.register())
    assert visitor.at == "consent"
    denied = visitor.sends(deny="1")
    assert query_of(denied.headers["Location"])["error"] == "access_denied"
    opens(visitor, app, request_uri)
    assert visitor.page.status_code == 400


def test_id_token_hint_is_pushed_too(app: Application) -> None:
    other = Application(app.tenant, app.client)
    other.sign_in(app.tenant.register())
    location = bring(app, pushed(app, id_token_hint=other.tokens()["id_token"], prompt="none")).headers["Location"]
    assert query_of(location)["error"] == "login_required"
    assert push(app, id_token_hint="x").json()["error"] == "invalid_request"


def test_proof_of_a_push_binds_the_code(app: Application) -> None:
    key, own = DpopKey(), {"client_id": app.client["client_id"]}
    par, token = (f"{app.issuer}/{name}" for name in ("par", "token"))
    for changed in ({}, {"dpop_jkt": key.jkt}):
        response = push(app, headers={"DPoP": key.proof("POST", par)}, **changed)
        assert response.status_code == 201, response.content
        code = query_of(bring(app, response.json()["request_uri"]).headers["Location"])["code"]
        by_key = {"DPoP": key.proof("POST", token)}
        if changed:
            by_key = {"DPoP": DpopKey().proof("POST", token)}
        assert app.exchange(code, headers=by_key, **own).status_code == (400 if changed else 200)


def test_invalid_or_other_proof_of_a_push_is_rejected(app: Application) -> None:
    key, par = DpopKey(), f"{app.issuer}/par"
    proofs = ["x", key.proof("POST", f"{app.issuer}/token"), key.proof("POST", par, iat=0)]
    rejected = [push(app, headers={"DPoP": proof}) for proof in proofs]
    rejected.append(push(app, headers={"DPoP": key.proof("POST", par)}, dpop_jkt=DpopKey().jkt))
    assert [(each.status_code, each.json()["error"]) for each in rejected] == [(400, "invalid_dpop_proof")] * 4
    with override_settings(DPOP_NONCES=True):
        asked = push(app, headers={"DPoP": key.proof("POST", par)})
        assert (asked.status_code, asked.json()["error"]) == (400, "use_dpop_nonce")
        proof = key.proof("POST", par, nonce=asked.headers["DPoP-Nonce"])
        assert push(app, headers={"DPoP": proof}).status_code == 201


def test_parameters_beside_request_uri_are_ignored(app: Application) -> None:
    query = app.parameters(scope="openid email", state="forged", request_uri=pushed(app))
    response = app.browser.get(f"{app.issuer}/authorize?{urlencode(query)}")
    fields = query_of(response.headers["Location"])
    assert fields["state"] == "a state"
    assert app.exchange(fields["code"]).json()["scope"] == "openid"


def test_concurrent_browsers_get_one_code(app: Application) -> None:
    request_uri = pushed(app)
    responses = run_concurrently([lambda: bring(app, request_uri) for _ in range(6)])
    assert sorted(response.status_code for response in responses) == [303] + [400] * 5


def test_request_uri_of_another_client_is_unknown(app: Application, tenant: TestTenant) -> None:
    other = register_application(tenant)
    request_uri = pushed(app)
    assert bring(app, request_uri, other["client_id"]).status_code == 400
    assert "code=" in bring(app, request_uri).headers["Location"]


def test_expired_or_invented_request_uri_is_unknown(app: Application, other_tenant: TestTenant) -> None:
    request_uri = pushed(app)
    with in_tenant(app.tenant.id):
        AuthorizationRequest.objects.filter(pushed=True, client_id=app.client["client_id"]).update(expires_at=now())
    assert bring(app, request_uri).status_code == 400
    assert bring(app, "urn:ietf:params:oauth:request_uri:x").status_code == 400
    elsewhere = Application(other_tenant, app.client, browser=app.browser)
    assert bring(elsewhere, pushed(app)).status_code == 400


def test_handle_of_a_page_is_no_request_uri(app: Application) -> None:
    app.browser = Api()
    handle = query_of(page_of(app.authorize()))["request"]
    assert bring(app, f"urn:ietf:params:oauth:request_uri:{handle}").status_code == 400


def test_client_that_must_push_is_rejected_otherwise(tenant: TestTenant) -> None:
    app = Application(tenant, register_application(tenant, first_party=True, require_par=True))
    app.sign_in(tenant.register())
    assert query_of(app.authorize().headers["Location"])["error"] == "invalid_request"
    assert "code=" in bring(app, pushed(app)).headers["Location"]


def test_push_authenticates_confidential_client(tenant: TestTenant) -> None:
    app = Application(tenant, register_application(tenant, type="confidential"))
    rejected = push(app)
    assert (rejected.status_code, rejected.json()["error"]) == (401, "invalid_client")
    assert push(app, headers=basic(app.client)).status_code == 201
    assert push(app, headers=basic(app.client), client_id=None).status_code == 201


REJECTED: list[tuple[dict[str, Any], str]] = [
    ({"redirect_uri": "https://evil.example.com"}, "invalid_request"),
    ({"redirect_uri": None}, "invalid_request"),
    ({"response_type": "token"}, "unsupported_response_type"),
    ({"code_challenge_method": "plain"}, "invalid_request"),
    ({"resource": "https://api.example.com"}, "invalid_target"),
    ({"request_uri": "urn:ietf:params:oauth:request_uri:x"}, "invalid_request"),
    ({"request": "x.y.z"}, "invalid_request_object"),
    ({"request": "eyJhbGciOiJub25lIn0.e30."}, "request_not_supported"),
    ({"state": ["a", "b"]}, "invalid_request"),
    ({"client_id": None}, "invalid_client"),
    ({"client_id": "00000000-0000-4000-8000-000000000000"}, "invalid_client"),
]


@pytest.mark.parametrize(("changed", "error"), REJECTED, ids=str)
def test_rejected_push_is_an_oauth_error(app: Application, changed: dict[str, Any], error: str) -> None:
    response = push(app, **changed)
    assert response.status_code in (400, 401)
    assert response.json()["error"] == error


def test_push_stores_the_handle_as_a_hash(app: Application) -> None:
    handle = pushed(app).rpartition(":")[2]
    assert len(handle) >= 43
    with in_tenant(app.tenant.id):
        assert handle not in str(list(AuthorizationRequest.objects.values()))


@pytest.mark.parametrize("is_pushed", [True, False], ids=["pushed", "begun in a browser"])
def test_request_does_not_redirect_to_an_address_the_client_has_lost(tenant: TestTenant, is_pushed: bool) -> None:
    app = Application(tenant, register_application(tenant, first_party=True))
    if is_pushed:
        app.sign_in(tenant.register())
        request_uri, kept = pushed(app), pushed(app)
    else:
        page = page_of(app.authorize())
    path = f"/clientms/tenants/{tenant.id}/clients/{app.client['id']}"
    assert tenant.api.patch(path, {"redirect_uris": ["https://other.example/cb"]}).status_code == 200
    lost = bring(app, request_uri) if is_pushed else app.browser.get(page)
    assert (lost.status_code, "Location" in lost.headers) == (400, False)
    assert tenant.api.patch(path, {"redirect_uris": app.client["redirect_uris"]}).status_code == 200
    if is_pushed:
        assert "code" in query_of(bring(app, kept).headers["Location"])
    else:
        assert app.browser.get(page).status_code == 200


def test_pushed_requests_are_limited_by_client_or_address(tenant: TestTenant, settings: Settings) -> None:
    settings.LIMITS = {**settings.LIMITS, "authorization": (3, 60)}
    public = Application(tenant, register_application(tenant))
    server = Application(tenant, register_application(tenant, type="confidential"))
    api = Api()

    def push_from(caller: Api, app: Application) -> Any:
        raw = urlencode(app.parameters(), doseq=True).encode()
        headers = basic(app.client) if app is server else None
        return caller.post(f"{app.issuer}/par", raw=raw, content_type=FORM, headers=headers)

    responses = [push_from(api, public) for _ in range(4)]
    assert [response.status_code for response in responses] == [201, 201, 201, 429]
    assert responses[-1].json()["error"] == "temporarily_unavailable"
    assert 1 <= int(responses[-1].headers["Retry-After"]) <= 60
    # Anyone knows the id of a public client, so it has no limit of its own; a confidential client has one.
    assert push_from(Api(), public).status_code == 201
    assert [push_from(api, server).status_code for _ in range(2)] == [201, 201]
    assert [push_from(Api(), server).status_code for _ in range(2)] == [201, 429]


def test_expired_requests_go_with_new_ones(app: Application) -> None:
    for _ in range(3):
        pushed(app)
    own = {"client_id": app.client["client_id"]}
    with in_tenant(app.tenant.id):
        # Those of other tests too: ten of all go with each new request, the oldest first.
        AuthorizationRequest.objects.filter(expires_at__lt=now()).delete()
        AuthorizationRequest.objects.filter(**own).update(expires_at=now() - timedelta(seconds=1))
    valid = pushed(app)
    with in_tenant(app.tenant.id):
        assert AuthorizationRequest.objects.filter(**own).count() == 1
    assert "code" in query_of(bring(app, valid).headers["Location"])
