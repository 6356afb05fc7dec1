"""PKCE: required unless a confidential client is registered without (RFC 9700 section 2.1.1)."""

from typing import Any

import pytest

from tests.openid.relying_party import Application, query_of, register_application
from tests.openid.test_code_exchange import error_of
from tests.userflow.clients.test_clients import path
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import basic, form
from tests.world import Api, TestTenant

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
