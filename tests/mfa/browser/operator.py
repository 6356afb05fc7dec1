"""What the operator of the demo tenant does over HTTP while a visitor is on the demo page."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Operator:
    """`facts` are the variables that the first start prints."""

    facts: dict[str, str]
    port: int

    def call(self, method: str, path: str, body: Any, token: str = "") -> dict[str, Any]:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        asked = urllib.request.Request(
            f"http://localhost:{self.port}{path}", json.dumps(body).encode(), headers, method=method
        )
        with urllib.request.urlopen(asked) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def signed_in(self) -> str:
        """A fresh access token."""
        body = {"username": self.facts["OPERATOR_USERNAME"], "password": self.facts["OPERATOR_PASSWORD"]}
        return str(self.call("POST", "/uflow/admin/auth/login", body)["access_token"])

    def register(self, email: str, password: str) -> str:
        """Register an end user; return the id."""
        body = {"tenant_id": self.facts["TENANT_ID"], "client_id": self.facts["CLIENT_ID"]}
        made = self.call("POST", "/uflow/user/clients/register", {**body, "email": email, "password": password})
        return str(made["user_id"])

    def issue_pass(self, user_id: str) -> str:
        """Issue an enrollment pass and read it."""
        body = {"tenant_id": self.facts["TENANT_ID"], "user_id": user_id, "reason": "lost phone", "delivery": "show"}
        return str(self.call("POST", "/webauthn/enrollment-passes", body, self.signed_in())["enrollment_pass"])

    @contextmanager
    def requires_factors(self) -> Iterator[None]:
        """The demo tenant requires a second factor meanwhile."""
        path = f"/uflow/admin/tenants/{self.facts['TENANT_ID']}/settings"
        self.call("PATCH", path, {"settings": {"mfa_policy": "required"}}, self.signed_in())
        try:
            yield
        finally:
            self.call("PATCH", path, {"settings": {"mfa_policy": None}}, self.signed_in())
