"""Keys of applications and their DPoP proofs."""

import base64
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from django.conf import settings
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from userflow.sessions.key_pairs import thumbprint

_LOADERS: dict[str, Any] = {"ES256": ECAlgorithm, "RS256": RSAAlgorithm, "EdDSA": OKPAlgorithm}


def new_private_key(algorithm: str, size: int = 2048) -> Any:
    if algorithm == "RS256":
        return rsa.generate_private_key(public_exponent=65_537, key_size=size)
    return ed25519.Ed25519PrivateKey.generate() if algorithm == "EdDSA" else ec.generate_private_key(ec.SECP256R1())


@dataclass
class DpopKey:
    """A key of an application."""

    algorithm: str = "ES256"
    private: Any = None
    jwk: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.private = self.private or new_private_key(self.algorithm)
        public = _LOADERS[self.algorithm].to_jwk(self.private.public_key(), as_dict=True)
        self.jwk = {name: public[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in public}

    @property
    def jkt(self) -> str:
        return thumbprint(self.jwk)

    def proof(
        self,
        method: str,
        path: str,
        *,
        access_token: str | None = None,
        header: dict[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """Return a proof; `changes` replace its claims, None removes one."""
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": f"{settings.BASE_URL}{path}",
            "iat": int(time.time()),
        }
        if access_token is not None:
            digest = hashlib.sha256(access_token.encode()).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        claims = {name: value for name, value in {**claims, **changes}.items() if value is not None}
        head = {"typ": "dpop+jwt", "jwk": self.jwk, **(header or {})}
        return jwt.encode(claims, self.private, algorithm=self.algorithm, headers=head)

    def headers(self, method: str, path: str, token: str, **changes: Any) -> dict[str, str]:
        """Return the headers of a call with an access token that is bound to the key."""
        return {
            "Authorization": f"DPoP {token}",
            "DPoP": self.proof(method, path, access_token=token, **changes),
        }
