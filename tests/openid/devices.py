"""A device without a browser that signs its user in (RFC 8628)."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.openid.pages.visitor import Visitor
from tests.openid.relying_party import register_application
from tests.userflow.sessions.clients import FORM
from tests.world import Api, TestTenant
from userflow.accounts.grant_types import DEVICE_CODE, REFRESH_TOKEN


@dataclass
class Device:
    """A device with its application's client; `codes` is the response that it shows a part of."""

    tenant: TestTenant
    client: dict[str, Any]
    codes: dict[str, Any] = field(default_factory=dict)

    @property
    def issuer(self) -> str:
        return f"/t/{self.tenant.slug}"

    def post(self, endpoint: str, headers: dict[str, str] | None = None, **parameters: Any) -> Any:
        """Call an endpoint: by client id, or with `headers` that authenticate the client."""
        own = {"client_id": self.client["client_id"]}
        sent = own | parameters if "Authorization" not in (headers or {}) else parameters
        raw = urlencode(sent, doseq=True).encode()
        headers = {"User-Agent": "Set-top box", **(headers or {})}
        return self.new_caller().post(f"{self.issuer}/{endpoint}", raw=raw, content_type=FORM, headers=headers)

    def new_caller(self) -> Api:
        """Return the device, at an address of its own."""
        return Api()

    def starts(self, **parameters: Any) -> dict[str, Any]:
        """Ask for codes."""
        response = self.post("device_authorization", **parameters)
        assert response.status_code == 200, response.content
        self.codes = dict(response.json())
        return self.codes

    def polls(self, headers: dict[str, str] | None = None, **changed: Any) -> Any:
        """Ask for tokens."""
        sent = {"grant_type": DEVICE_CODE, "device_code": self.codes["device_code"]}
        return self.post("token", headers, **{**sent, **changed})

    @property
    def error(self) -> str:
        """Poll once and return the error."""
        return error_of(self.polls())

    def approved_by(self, visitor: Visitor) -> Any:
        """Let the signed-in user of a browser enter the code and allow it."""
        visitor.opens(f"device?user_code={self.codes['user_code']}")
        assert self.codes["user_code"] in visitor.words, visitor.words
        return visitor.sends(allow="1")


def error_of(response: Any) -> str:
    """Return the error of a response of the token endpoint."""
    assert response.status_code in (400, 401), response.content
    return str(response.json()["error"])


def new_device(tenant: TestTenant, **fields: Any) -> Device:
    """Return a device with a client of its own; first-party unless `fields` says otherwise."""
    defaults = {"name": "Television", "grant_types": [DEVICE_CODE, REFRESH_TOKEN], "first_party": True}
    return Device(tenant, register_application(tenant, **{**defaults, **fields}))
