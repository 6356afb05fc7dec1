"""A WebAuthn client and its authenticator in one, written against the standard and not against our server.

Each knob of `Knobs` breaks one rule. Registration carries packed self attestation unless told otherwise, so that every
byte of it is signed and a change of any of them must be noticed.
"""

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, field, replace
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

UP, UV, BE, BS, AT = 0x01, 0x04, 0x08, 0x10, 0x40
ES256, EDDSA, ES384, RS256 = -7, -8, -35, -257


def b64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(frozen=True)
class Knobs:
    """What a response says; the defaults are those of an honest client."""

    origin: str | None = None
    type: str | None = None
    challenge: str | None = None
    rp_id: str | None = None
    flags: int | None = None
    sign_count: int | None = None
    user_handle: bytes | None = None
    without_handle: bool = False
    attestation: str = "packed"
    client_data: dict[str, Any] = field(default_factory=dict)
    credential_id: bytes | None = None
    public_key: dict[Any, Any] | None = None
    # The attestation statement; by default that of the format.
    statement: Any = ...
    tamper_signature: bool = False


HONEST = Knobs()


class Authenticator:
    """One key of one user at one relying party."""

    def __init__(self, *, origin: str, alg: int = ES256, flags: int = UP | UV, counting: bool = True) -> None:
        self.origin, self.alg, self.flags, self.counting = origin, alg, flags, counting
        self.key: Any = {
            ES256: lambda: ec.generate_private_key(ec.SECP256R1()),
            ES384: lambda: ec.generate_private_key(ec.SECP384R1()),
            EDDSA: ed25519.Ed25519PrivateKey.generate,
            RS256: lambda: rsa.generate_private_key(65537, 2048),
        }[alg]()
        self.credential_id = secrets.token_bytes(32)
        self.aaguid = bytes(16)
        self.sign_count = 0
        self.user_handle = b""
        self.rp_id = ""

    # --- the two ceremonies ------------------------------------------------------------------------------------------

    def create(self, options: dict[str, Any], knobs: Knobs = HONEST, **changes: Any) -> dict[str, Any]:
        """navigator.credentials.create(), as PublicKeyCredential.toJSON() gives it."""
        knobs = replace(knobs, **changes)
        self.rp_id, self.user_handle = options["rp"]["id"], unb64(options["user"]["id"])
        client_data = self._client_data("webauthn.create", options, knobs)
        credential_id = self.credential_id if knobs.credential_id is None else knobs.credential_id
        data = self._head(knobs, self.flags | AT, self.rp_id) + self.aaguid + len(credential_id).to_bytes(2, "big")
        data += credential_id + cbor2.dumps(knobs.public_key or self.cose_key())
        statement: dict[str, Any] = {}
        if knobs.attestation == "packed":
            statement = {"alg": self.alg, "sig": self._sign(data + hashlib.sha256(client_data).digest(), knobs)}
        if knobs.statement is not ...:
            statement = knobs.statement
        attestation = cbor2.dumps({"fmt": knobs.attestation, "attStmt": statement, "authData": data})
        response = {"clientDataJSON": b64(client_data), "attestationObject": b64(attestation), "transports": ["usb"]}
        return self._credential(credential_id, response)

    def get(self, options: dict[str, Any], knobs: Knobs = HONEST, **changes: Any) -> dict[str, Any]:
        """navigator.credentials.get(), as PublicKeyCredential.toJSON() gives it."""
        knobs = replace(knobs, **changes)
        self.sign_count += self.counting
        client_data = self._client_data("webauthn.get", options, knobs)
        data = self._head(knobs, self.flags, options["rpId"])
        response = {
            "clientDataJSON": b64(client_data),
            "authenticatorData": b64(data),
            "signature": b64(self._sign(data + hashlib.sha256(client_data).digest(), knobs)),
            "userHandle": b64(self.user_handle if knobs.user_handle is None else knobs.user_handle),
        }
        if knobs.without_handle:
            del response["userHandle"]
        return self._credential(knobs.credential_id or self.credential_id, response)

    # --- parts -------------------------------------------------------------------------------------------------------

    def cose_key(self) -> dict[int, Any]:
        """The public key in COSE form (RFC 9053)."""
        public = self.key.public_key()
        if self.alg == EDDSA:
            return {1: 1, 3: EDDSA, -1: 6, -2: public.public_bytes_raw()}
        numbers = public.public_numbers()
        if self.alg == RS256:
            return {1: 3, 3: RS256, -1: numbers.n.to_bytes(256, "big"), -2: numbers.e.to_bytes(3, "big")}
        curve, width = (1, 32) if self.alg == ES256 else (2, 48)
        x, y = numbers.x.to_bytes(width, "big"), numbers.y.to_bytes(width, "big")
        return {1: 2, 3: self.alg, -1: curve, -2: x, -3: y}

    def _client_data(self, kind: str, options: dict[str, Any], knobs: Knobs) -> bytes:
        said = {
            "type": knobs.type or kind,
            "challenge": options["challenge"] if knobs.challenge is None else knobs.challenge,
            "origin": self.origin if knobs.origin is None else knobs.origin,
            "crossOrigin": False,
            **knobs.client_data,
        }
        return json.dumps(said, separators=(",", ":")).encode()

    def _head(self, knobs: Knobs, flags: int, rp_id: str) -> bytes:
        count = self.sign_count if knobs.sign_count is None else knobs.sign_count
        shown = flags if knobs.flags is None else knobs.flags
        hashed = hashlib.sha256((knobs.rp_id or rp_id).encode()).digest()
        return hashed + bytes([shown]) + count.to_bytes(4, "big")

    def _sign(self, message: bytes, knobs: Knobs) -> bytes:
        if self.alg == EDDSA:
            signature = self.key.sign(message)
        elif self.alg == RS256:
            signature = self.key.sign(message, padding.PKCS1v15(), hashes.SHA256())
        else:
            signature = self.key.sign(message, ec.ECDSA(hashes.SHA384() if self.alg == ES384 else hashes.SHA256()))
        return signature[:-1] + bytes([signature[-1] ^ 1]) if knobs.tamper_signature else signature

    def _credential(self, credential_id: bytes, response: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": b64(credential_id),
            "rawId": b64(credential_id),
            "type": "public-key",
            "authenticatorAttachment": "cross-platform",
            "clientExtensionResults": {},
            "response": response,
        }
