"""Keys that authenticate the platform at identity providers: only suitable ones sign."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from userflow.sessions.upstream_assertions import AssertionKeyInvalid, client_assertion, read_apple_key

P256, P384 = (ec.generate_private_key(curve) for curve in (ec.SECP256R1(), ec.SECP384R1()))
RSA, SHORT_RSA = (rsa.generate_private_key(65537, bits) for bits in (2048, 1024))
ED25519 = ed25519.Ed25519PrivateKey.generate()


def der(key: Any) -> bytes:
    return bytes(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


def pem(key: Any) -> str:
    return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(P384, "ES256"), (P256, "RS256"), (RSA, "ES256"), (SHORT_RSA, "RS256"), (ED25519, "ES256"), (RSA, "HS256")],
)
def test_key_of_another_kind_does_not_sign(key: Any, algorithm: str) -> None:
    with pytest.raises(AssertionKeyInvalid) as caught:
        client_assertion(private=der(key), algorithm=algorithm, kid="k", client_id="c", audience="https://idp.example")
    assert "ES256" in str(caught.value)


@pytest.mark.parametrize("private", [pem(P384), pem(RSA), pem(ED25519), "", "text", "\u20ac", pem(P256)[:-40]])
def test_file_that_is_no_apple_key_is_rejected(private: str) -> None:
    with pytest.raises(AssertionKeyInvalid):
        read_apple_key(private)


def test_apple_key_is_read() -> None:
    assert read_apple_key(pem(P256)).private_numbers() == P256.private_numbers()
