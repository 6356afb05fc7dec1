"""The device grant of a client with `security_profile: fapi2`.

The FAPI 2.0 Security Profile (Final) rejects the grant by password alone (section 5.3.2.1) and says no word about devices, so
their grant stays, under the general requirements: the client authenticates with its key, and its tokens are bound to one.
"""

from typing import Any

import pytest
from django.conf import settings

from tests.openid.devices import Device
from tests.openid.dpop_keys import DpopKey
from tests.openid.pages.visitor import Visitor
from tests.openid.profiled_application import ProfiledApplication, profiled_application
from tests.openid.test_code_exchange import claims_of, error_of
from tests.userflow.clients.keys import key_set, new_key, public_jwk
from tests.userflow.clients.test_clients import create
from tests.userflow.sessions.clients import basic
from tests.world import Api, TestTenant
from userflow.accounts.grant_types import DEVICE_CODE, REFRESH_TOKEN

GRANTS = [DEVICE_CODE, REFRESH_TOKEN]
NO_ASSERTION: dict[str, Any] = {"client_assertion": None, "client_assertion_type": None}


@pytest.fixture
def app(tenant: TestTenant) -> ProfiledApplication:
    return profiled_application(tenant, grant_types=GRANTS)


def approved(app: ProfiledApplication) -> str:
    """Return the code of a device that a user has approved."""
    codes = app.post("device_authorization", scope="openid").json()
    visitor = Visitor(app.tenant)
    visitor.signs_in(app.tenant.register())
    Device(app.tenant, app.client, codes).approved_by(visitor)
    return str(codes["device_code"])


def polls(app: ProfiledApplication, device_code: str, headers: dict[str, str] | None = None, **changed: Any) -> Any:
    """Ask for tokens, with a DPoP proof unless `headers` are stated."""
    by_key = app.by_key("token") if headers is None else headers
    return app.post("token", by_key, grant_type=DEVICE_CODE, device_code=device_code, **changed)


def test_device_gets_bound_tokens(app: ProfiledApplication) -> None:
    response = polls(app, approved(app))
    assert (response.status_code, response.json()["token_type"]) == (200, "DPoP"), response.content
    tokens, at = response.json(), f"{app.issuer}/userinfo"
    assert claims_of(app, tokens["access_token"], f"{settings.BASE_URL}{at}")["cnf"] == {"jkt": app.dpop.jkt}
    assert app.userinfo(tokens["access_token"]).status_code == 200
    assert Api(token=tokens["access_token"]).get(at).status_code == 401
    # The refresh token is bound too, and stays the same.
    assert error_of(app.refresh(tokens["refresh_token"], headers={})) == "invalid_dpop_proof"
    assert app.refresh(tokens["refresh_token"]).json()["refresh_token"] == tokens["refresh_token"]


def test_poll_without_a_proof_leaves_the_code_usable(app: ProfiledApplication) -> None:
    code = approved(app)
    assert error_of(polls(app, code, headers={})) == "invalid_dpop_proof"
    weak = {"DPoP": DpopKey("RS256").proof("POST", f"{app.issuer}/token")}
    assert error_of(polls(app, code, headers=weak)) == "invalid_dpop_proof"
    assert polls(app, code).status_code == 200


def test_device_authenticates_with_its_key(app: ProfiledApplication) -> None:
    code, own = approved(app), {"client_id": app.client["client_id"]}
    for headers in ({}, basic(app.client, "ics_x")):
        named = {} if headers else own
        assert error_of(app.post("device_authorization", headers, **NO_ASSERTION, **named)) == "invalid_client"
        with_proof = {**headers, **app.by_key("token")}
        assert error_of(polls(app, code, with_proof, **NO_ASSERTION, **named)) == "invalid_client"
    assert polls(app, code).status_code == 200


def test_public_device_cannot_have_the_profile(tenant: TestTenant) -> None:
    body = {"type": "public", "grant_types": GRANTS, "jwks": key_set(public_jwk(new_key()))}
    rejected = create(tenant, **body, security_profile="fapi2")
    assert rejected.status_code == 400
    assert rejected.json()["details"] == {"type": ["fapi2 is for confidential clients only. Create one of that type."]}
