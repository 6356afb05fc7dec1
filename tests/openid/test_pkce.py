"""PKCE: required unless a confidential client is registered without (RFC 9700 section 2.1.1)."""

from typing import Any

import jwt
import pytest

from tests.copies import change_client
from tests.openid.relying_party import Application, query_of, register_application
from tests.openid.test_code_exchange import error_of
from tests.userflow.clients.keys import key_set, new_key, public_jwk
from tests.userflow.clients.test_clients import create, path
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import basic, form
from tests.world import Api, TestTenant, capture_statements

WITHOUT: dict[str, Any] = {"code_challenge": None, "code_challenge_method": None}


@pytest.fixture
def app(tenant: TestTenant) -> Application:
    """Return a confidential client that needs no PKCE."""
    fields = {"type": "confidential", "first_party": True, "require_pkce": False}
    app = Application(tenant, register_application(tenant, **fields))
    app.sign_in(tenant.register())
    return app


def exchange(app: Application, code: str, **changed: Any) -> Any:
    return app.exchange(code, headers=basic(app.client), **changed)


def rejected(app: Application, **changed: Any) -> dict[str, str]:
    fields = query_of(app.authorize(**changed).headers["Location"])
    assert "code" not in fields
    return fields


def test_code_without_pkce_is_exchanged_without_verifier(app: Application) -> None:
    response = exchange(app, app.code(**WITHOUT), code_verifier=None)
    assert response.status_code == 200, response.content
    assert response.json()["id_token"]


def test_nonce_is_required_with_openid(app: Application) -> None:
    fields = rejected(app, **WITHOUT, nonce=None)
    assert (fields["error"], fields["error_description"]) == (
        "invalid_request",
        "nonce is missing. Send it, or use PKCE.",
    )
    assert app.code(**WITHOUT, nonce=None, scope="email")
    assert app.code(nonce=None)


def test_verifier_without_challenge_is_rejected(app: Application) -> None:
    # RFC 9700 section 4.8.2: an attacker has taken the challenge out of the request.
    assert error_of(exchange(app, app.code(**WITHOUT))) == "invalid_grant"


def test_challenge_that_is_sent_counts(app: Application) -> None:
    assert error_of(exchange(app, app.code(), code_verifier=None)) == "invalid_grant"
    assert error_of(exchange(app, app.code(), code_verifier="x" * 43)) == "invalid_grant"
    assert exchange(app, app.code()).status_code == 200


@pytest.mark.parametrize(
    "changed",
    [{"code_challenge_method": "plain"}, {"code_challenge": None}, {"code_challenge_method": None}],
    ids=str,
)
def test_incomplete_challenge_is_rejected(app: Application, changed: dict[str, Any]) -> None:
    assert rejected(app, **changed)["error"] == "invalid_request"


def test_pushed_request_without_pkce(app: Application) -> None:
    sent = app.parameters(**WITHOUT)
    response = push(app, sent)
    assert response.status_code == 201, response.content
    own = {"client_id": app.client["client_id"], "request_uri": response.json()["request_uri"]}
    location = app.browser.get(f"{app.issuer}/authorize", own).headers["Location"]
    assert exchange(app, query_of(location)["code"], code_verifier=None).status_code == 200
    del sent["nonce"]
    assert error_of(push(app, sent)) == "invalid_request"


def push(app: Application, sent: dict[str, Any]) -> Any:
    return app.new_caller().post(f"{app.issuer}/par", **form(**sent), headers=basic(app.client))


def test_public_client_always_needs_pkce(tenant: TestTenant) -> None:
    client = register_application(tenant)
    response = tenant.api.patch(path(tenant, client["id"]), {"require_pkce": False})
    assert (response.status_code, list(response.json()["details"])) == (400, ["require_pkce"])


def test_turning_pkce_off_requires_recent_authentication(tenant: TestTenant) -> None:
    client = register_application(tenant, type="confidential")
    stale = Api(token=aged(str(tenant.api.token), 16))
    response = stale.patch(path(tenant, client["id"]), {"require_pkce": False})
    assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")
    off = tenant.api.patch(path(tenant, client["id"]), {"require_pkce": False})
    assert (off.status_code, off.json()["require_pkce"]) == (200, False)
    assert stale.patch(path(tenant, client["id"]), {"require_pkce": True}).status_code == 200


# --- neither PKCE nor nonce ------------------------------------------------------------------------------------------

NEITHER: dict[str, Any] = {"require_pkce": False, "require_nonce": False}


def test_client_that_can_send_neither_gets_a_code(tenant: TestTenant, app: Application) -> None:
    own, bare = path(tenant, app.client["id"]), {**WITHOUT, "nonce": None}
    assert tenant.api.get(own).json()["require_nonce"] is True
    assert tenant.api.patch(own, {"require_nonce": False}).json()["require_nonce"] is False
    response = exchange(app, app.code(**bare), code_verifier=None)
    assert response.status_code == 200, response.content
    claims = jwt.decode(response.json()["id_token"], options={"verify_signature": False})
    assert "nonce" not in claims
    sent = {name: value for name, value in app.parameters(**bare).items() if value is not None}
    assert push(app, sent).status_code == 201
    # What is sent counts as before.
    assert error_of(exchange(app, app.code(), code_verifier=None)) == "invalid_grant"
    assert tenant.api.patch(own, {"require_nonce": True}).status_code == 200
    assert rejected(app, **bare)["error"] == "invalid_request"


def test_require_nonce_costs_no_statement(app: Application) -> None:
    assert app.code(**WITHOUT)
    with capture_statements() as with_nonce:
        assert app.code(**WITHOUT)
    change_client(app.client["id"], require_nonce=False)
    with capture_statements() as without:
        assert app.code(**WITHOUT, nonce=None)
    assert without.counts == with_nonce.counts


@pytest.mark.parametrize(
    "fields",
    [
        {"require_nonce": False},
        {"type": "confidential", "require_nonce": False},
        {"type": "confidential", "require_nonce": False, "require_pkce": True},
    ],
    ids=str,
)
def test_client_with_pkce_cannot_go_without_nonce(tenant: TestTenant, fields: dict[str, Any]) -> None:
    response = create(tenant, **fields)
    assert (response.status_code, list(response.json()["details"])) == (400, ["require_nonce"])


def test_later_changes_cannot_contradict_require_nonce(tenant: TestTenant) -> None:
    client = register_application(tenant, type="confidential", **NEITHER)
    own = path(tenant, client["id"])
    for changes, field in (({"require_pkce": True}, "require_nonce"), ({"type": "public"}, "type")):
        response = tenant.api.patch(own, changes)
        assert (response.status_code, list(response.json()["details"])) == (400, [field])
    # A security profile sets both, as it sets its other fields.
    keys = key_set(public_jwk(new_key()))
    profiled = tenant.api.patch(own, {"security_profile": "fapi2", "jwks": keys})
    assert profiled.status_code == 200, profiled.content
    assert (profiled.json()["require_pkce"], profiled.json()["require_nonce"]) == (True, True)
    response = tenant.api.patch(own, {"require_nonce": False})
    assert (response.status_code, list(response.json()["details"])) == (400, ["require_nonce"])


def test_turning_nonce_off_requires_recent_authentication(tenant: TestTenant) -> None:
    client = register_application(tenant, type="confidential", require_pkce=False)
    own, stale = path(tenant, client["id"]), Api(token=aged(str(tenant.api.token), 16))
    response = stale.patch(own, {"require_nonce": False})
    assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")
    assert tenant.api.patch(own, {"require_nonce": False}).status_code == 200
    assert stale.patch(own, {"require_nonce": True}).status_code == 200
