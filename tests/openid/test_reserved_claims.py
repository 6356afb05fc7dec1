"""The claims that no tenant can map: what the platform's own tokens carry, and what is registered."""

from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from tenants.settings.reserved_claims import DESCRIPTIVE_CLAIMS, RESERVED_CLAIMS
from tests.openid.logout_receiver import LogoutReceiver
from tests.openid.logout_scene import deliver, logout_of_the_application, scene_of
from tests.openid.relying_party import Application, register_application
from tests.userflow.sessions.clients import basic, form
from tests.world import Api, TestTenant

SCOPE = "openid profile email phone groups roles offline_access"
# Names of the registries, and those by which applications of other providers identify and authorize users.
NAMED = (
    "entitlements authorization_details upn oid tid preferred_username hasgroups given_name picture address groups roles"
    " cnf act may_act verified_claims vc status htu ath sub_id wids org_id realm_access external_id _claim_names"
)


@pytest.fixture
def receiver(settings: Any) -> Iterator[LogoutReceiver]:
    settings.CLIENT_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.CLIENT_PLAIN_HTTP = True
    made = LogoutReceiver()
    yield made
    made.close()


def names_in(token: str) -> set[str]:
    return set(jwt.decode(token, options={"verify_signature": False}))


def test_registered_names_are_reserved() -> None:
    assert set(NAMED.split()) <= RESERVED_CLAIMS
    assert DESCRIPTIVE_CLAIMS <= RESERVED_CLAIMS
    assert not {"department", "plan", "level", "employee_number"} & RESERVED_CLAIMS


def test_claims_of_users_tokens_are_reserved(tenant: TestTenant) -> None:
    fields: dict[str, Any] = {"type": "confidential", "scopes": ["services:read"], "first_party": True}
    app = Application(tenant, register_application(tenant, **fields, audiences=["https://api.example.com"]))
    user = tenant.register()
    app.sign_in(user)
    sent = {"grant_type": "authorization_code", "code": app.code(scope=SCOPE), "code_verifier": app.verifier}
    sent["redirect_uri"] = "https://app.example.com/callback"
    tokens = app.token(headers=basic(app.client), **sent).json()
    caller = Api(token=tokens["access_token"])
    own = tenant.sign_in(user)["access_token"]
    assert names_in(tokens["id_token"]) | names_in(tokens["access_token"]) | names_in(own) <= RESERVED_CLAIMS
    assert set(caller.get(f"{app.issuer}/userinfo").json()) <= RESERVED_CLAIMS
    for token in (tokens["access_token"], own):
        shown = Api().post("/authmgr/token/introspect", **form(token=token), headers=basic(app.client)).json()
        assert shown["active"]
        assert set(shown) <= RESERVED_CLAIMS


def test_claims_of_other_tokens_are_reserved(tenant: TestTenant) -> None:
    fields = {"type": "confidential", "scopes": ["services:read"]}
    client = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", {"name": "Job", **fields}).json()
    sent = form(grant_type="client_credentials")
    of_client = Api().post("/authmgr/token", **sent, headers=basic(client)).json()["access_token"]
    assert tenant.api.token
    assert names_in(of_client) | names_in(tenant.api.token) <= RESERVED_CLAIMS


def test_claims_of_logout_tokens_are_reserved(tenant: TestTenant, receiver: LogoutReceiver) -> None:
    scene = scene_of(tenant, receiver)
    logout_of_the_application(scene)
    deliver()
    (token,) = receiver.taken
    assert names_in(token) <= RESERVED_CLAIMS
