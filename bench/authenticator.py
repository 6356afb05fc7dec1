"""A software authenticator: one ES256 key of one user, enrolled without a ceremony, and its responses to challenges."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from mfa.webauthn.responses import base64url

_PRESENT_AND_VERIFIED = b"\x05"


@dataclass
class Authenticator:
    """A passkey as browser and authenticator store it."""

    user_id: UUID
    origin: str
    rp_id: str
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    uses: int = 0

    def public_key(self) -> bytes:
        """Return the key in COSE form (RFC 9053 section 7.1)."""
        numbers = self.key.public_key().public_numbers()
        x, y = numbers.x.to_bytes(32, "big"), numbers.y.to_bytes(32, "big")
        return cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})

    def respond(self, challenge: bytes) -> dict[str, Any]:
        """Return the response to a challenge in the form of `PublicKeyCredential.toJSON()`."""
        self.uses += 1
        said = {"type": "webauthn.get", "challenge": base64url(challenge), "origin": self.origin, "crossOrigin": False}
        client_data = json.dumps(said, separators=(",", ":")).encode()
        data = hashlib.sha256(self.rp_id.encode()).digest() + _PRESENT_AND_VERIFIED + self.uses.to_bytes(4, "big")
        signature = self.key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        named = base64url(self.credential_id)
        return {
            "id": named,
            "rawId": named,
            "type": "public-key",
            "response": {
                "clientDataJSON": base64url(client_data),
                "authenticatorData": base64url(data),
                "signature": base64url(signature),
                "userHandle": base64url(self.user_id.bytes),
            },
        }
