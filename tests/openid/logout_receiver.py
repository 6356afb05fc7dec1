"""An application that receives logout tokens over HTTP and verifies them with a public library."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import KeySet

from tests.receiver import Receiver
from tests.world import Api, TestTenant

EVENT = "http://schemas.openid.net/event/backchannel-logout"


@dataclass
class LogoutReceiver(Receiver):
    """Keeps the logout tokens; `respond` returns the status and headers of each response."""

    respond: Callable[[], tuple[int, dict[str, str]]] = field(default=lambda: (200, {}))
    received: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def decide(self, body: bytes) -> tuple[int, dict[str, str]]:
        return self.respond()

    def keep(self, body: bytes, headers: dict[str, str], status: int) -> None:
        assert headers["content-type"] == "application/x-www-form-urlencoded"
        tokens = parse_qs(body.decode(), strict_parsing=True)["logout_token"]
        self.received += tokens
        self.taken += tokens if status < 300 else []

    def accepted(self) -> int:
        return len(self.taken)

    def wait_for(self, number: int, *, seconds: float = 60.0) -> list[str]:
        """Wait until this number of tokens was accepted."""
        self.await_accepted(number, seconds)
        return list(self.taken)


def verified(token: str, tenant: TestTenant, client_id: object, algorithm: str = "RS256") -> dict[str, Any]:
    """Return the claims of a logout token, verified as an application does (Back-Channel Logout section 2.6)."""
    published = Api().get(f"/t/{tenant.slug}/.well-known/openid-configuration").json()
    keys = KeySet.import_key_set(Api().get(f"/t/{tenant.slug}/jwks").json())
    decoded = jwt.decode(token, keys, algorithms=[algorithm])
    jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": published["issuer"]},
        aud={"essential": True, "value": str(client_id)},
        iat={"essential": True},
        exp={"essential": True},
        jti={"essential": True},
        events={"essential": True, "value": {EVENT: {}}},
    ).validate(decoded.claims)
    assert decoded.header["typ"] == "logout+jwt"
    assert "nonce" not in decoded.claims
    return dict(decoded.claims)
