"""An application with the security profile fapi2: it signs assertions and DPoP proofs, and pushes its requests."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.conf import settings

from tests.openid.dpop_keys import DpopKey
from tests.openid.relying_party import CALLBACK, Application, query_of
from tests.userflow.clients.keys import PrivateKey, assertion, key_set, new_key, public_jwk
from tests.userflow.clients.test_assertions import TYPE
from tests.userflow.clients.test_clients import create
from tests.userflow.sessions.clients import FORM
from tests.world import Api, TestTenant


@dataclass
class ProfiledApplication(Application):
    """The application, its keys and the browser of one user at it."""

    key: PrivateKey = field(default_factory=new_key)
    dpop: DpopKey = field(default_factory=DpopKey)

    def proof(self, audience: Any = None, **changed: Any) -> dict[str, str]:
        """Return a new assertion, for the issuer unless stated, as parameters of a request."""
        issuer = f"{settings.TOKEN_ISSUER}{self.issuer}"
        stated = assertion(self.key, self.client["client_id"], audience or issuer, **changed)
        return {"client_assertion_type": TYPE, "client_assertion": stated}

    def by_key(self, endpoint: str, **changed: Any) -> dict[str, str]:
        """Return the header with a DPoP proof for an endpoint below the issuer."""
        return {"DPoP": self.dpop.proof("POST", f"{self.issuer}/{endpoint}", **changed)}

    def post(self, endpoint: str, headers: dict[str, str] | None = None, **parameters: Any) -> Any:
        """Call an endpoint below the issuer with an assertion; `parameters` may have another one, None removes one."""
        proof = {} if "client_assertion" in parameters else self.proof()
        sent = {name: value for name, value in {**proof, **parameters}.items() if value is not None}
        raw = urlencode(sent, doseq=True).encode()
        return self.new_caller().post(f"{self.issuer}/{endpoint}", raw=raw, content_type=FORM, headers=headers)

    def push(self, headers: dict[str, str] | None = None, **changed: Any) -> Any:
        """Push an authorization request."""
        return self.post("par", headers, **{**self.parameters(), **changed})

    def bring(self, pushed: Any) -> Any:
        """Send the browser to the authorization endpoint with a pushed request."""
        assert pushed.status_code == 201, pushed.content
        sent = {"client_id": self.client["client_id"], "request_uri": pushed.json()["request_uri"]}
        return self.browser.get(f"{self.issuer}/authorize?{urlencode(sent)}")

    def code(self, **changed: Any) -> str:
        """Return a code for the user of the browser, by a pushed request."""
        return query_of(self.bring(self.push(**changed)).headers["Location"])["code"]

    def exchange(self, code: str, headers: dict[str, str] | None = None, **changed: Any) -> Any:
        """Send a code to the token endpoint, with a DPoP proof unless `headers` are stated."""
        sent = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
        by_key = self.by_key("token") if headers is None else headers
        return self.post("token", by_key, **{**sent, "code_verifier": self.verifier, **changed})

    def refresh(self, refresh_token: str, headers: dict[str, str] | None = None) -> Any:
        """Refresh, with a DPoP proof unless `headers` are stated."""
        by_key = self.by_key("token") if headers is None else headers
        return self.post("token", by_key, grant_type="refresh_token", refresh_token=refresh_token)

    def userinfo(self, access_token: str) -> Any:
        """Call the userinfo endpoint with a token that is bound to the key."""
        path = f"{self.issuer}/userinfo"
        return Api().get(path, headers=self.dpop.headers("GET", path, access_token))


def profiled_application(
    tenant: TestTenant, key: PrivateKey | None = None, dpop: DpopKey | None = None, **fields: Any
) -> ProfiledApplication:
    """Create a client with the profile through the API, and a browser in which a user of the tenant is signed in."""
    key = key or new_key()
    keys = key_set(public_jwk(key))
    body = {"type": "confidential", "redirect_uris": [CALLBACK], "first_party": True, "security_profile": "fapi2"}
    made = create(tenant, **{**body, "jwks": keys, **fields})
    assert made.status_code == 201, made.content
    app = ProfiledApplication(tenant, made.json(), key=key, dpop=dpop or DpopKey())
    app.sign_in(tenant.register())
    return app
