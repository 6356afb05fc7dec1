"""Public keys of clients (RFC 7517): read the key set that a client registers or publishes."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from django.conf import settings

from identity_platform.outbound import Reach, TargetRejected, check_host

MOST_KEYS: Final = 10
LONGEST_SET: Final = 16_384
# RSA: a verification with a longer key or exponent costs an attacker nothing and this server milliseconds.
RSA_BITS: Final = (2048, 4096)
_LONGEST_EXPONENT: Final = 32
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
# By type and curve: the algorithms that a key may sign with.
_ALGORITHMS: Final[Mapping[tuple[object, object], tuple[str, ...]]] = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("RSA", None): ("RS256", "PS256"),
}
SIGNING_ALGORITHMS: Final = tuple(name for names in _ALGORITHMS.values() for name in names)


class KeySetInvalid(ValueError):
    """The document is no set of public signing keys; the text says why."""


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A public key and the algorithms that it verifies."""

    kid: str | None
    algorithms: tuple[str, ...]
    key: jwt.PyJWK
    # The first of its certificates (`x5c`), in DER.
    certificate: bytes | None = None


def reach() -> Reach:
    """Return where keys of clients are fetched from, and where logout tokens are sent to, from the settings."""
    return Reach.of(settings.CLIENT_ALLOWED_NETWORKS, plain_http=settings.CLIENT_PLAIN_HTTP)


def problem_of_server_address(url: str) -> str | None:
    """Return why this server would not call an address of a client, or None. Names are not resolved."""
    form = "Send an absolute https:// address without a fragment."
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return form
    schemes = ("https", "http") if settings.CLIENT_PLAIN_HTTP else ("https",)
    if parts.scheme not in schemes or not parts.hostname or "@" in parts.netloc or "#" in url:
        return form
    if not url.isascii() or " " in url:
        return form
    try:
        check_host(parts.hostname, reach())
    except TargetRejected as rejected:
        return rejected.reason
    return None


def read_key_set(document: object, *, lenient: bool = False, most: int = MOST_KEYS) -> tuple[ClientKey, ...]:
    """Return the signing keys of a set (RFC 7517 section 5) of at most `most` keys. Raises KeySetInvalid.

    A lenient reading passes over keys of other kinds, as a client may publish them for other servers.
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not 0 < len(entries) <= most:
        raise KeySetInvalid(f'Send a JSON Web Key Set of 1 to {most} keys: {{"keys": [...]}}.')
    keys: list[ClientKey] = []
    for number, jwk in enumerate(entries):
        if isinstance(jwk, dict) and jwk.get("use") == "enc":
            continue
        try:
            keys.append(_key(jwk))
        except KeySetInvalid as problem:
            if not lenient:
                raise KeySetInvalid(f"keys[{number}]: {problem}") from problem
    if not keys:
        raise KeySetInvalid("The set has no key for signatures.")
    names = [key.kid for key in keys]
    if len(set(names)) < len(names):
        raise KeySetInvalid("Each key needs a `kid` of its own.")
    return tuple(keys)


def _key(jwk: object) -> ClientKey:
    if not isinstance(jwk, dict) or jwk.keys() & _PRIVATE:
        raise KeySetInvalid("Send public keys only. Replace a private key that was sent anywhere.")
    kid, curve = jwk.get("kid"), None if jwk.get("kty") == "RSA" else jwk.get("crv")
    kind = (jwk.get("kty"), curve)
    algorithms = _ALGORITHMS.get(kind) if all(isinstance(part, str | None) for part in kind) else None
    algorithm = jwk.get("alg")
    if algorithms is None or algorithm not in (None, *algorithms) or jwk.get("use", "sig") != "sig":
        raise KeySetInvalid("Send a signing key: EC with P-256 or P-384, OKP with Ed25519, or RSA.")
    if kid is not None and (not isinstance(kid, str) or not 0 < len(kid) <= 255):
        raise KeySetInvalid("The `kid` is a string of 1 to 255 characters.")
    allowed = algorithms if algorithm is None else (str(algorithm),)
    try:
        key = jwt.PyJWK(jwk, algorithm=allowed[0])
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as problem:
        raise KeySetInvalid("The key cannot be read.") from problem
    if isinstance(key.key, rsa.RSAPublicKey):
        numbers = key.key.public_numbers()
        if not RSA_BITS[0] <= key.key.key_size <= RSA_BITS[1] or numbers.e.bit_length() > _LONGEST_EXPONENT:
            raise KeySetInvalid(f"RSA keys have {RSA_BITS[0]} to {RSA_BITS[1]} bits and a short exponent.")
    return ClientKey(kid, allowed, key, _certificate(jwk.get("x5c"), key))


def _certificate(encoded: object, key: jwt.PyJWK) -> bytes | None:
    """Return the first certificate of a key if it is one of this key (RFC 7517 section 4.7), else None."""
    if not isinstance(encoded, list) or not encoded:
        return None
    try:
        certificate = x509.load_der_x509_certificate(base64.b64decode(encoded[0], validate=True))
        is_of_key = certificate.public_key() == key.key
    except (ValueError, TypeError):  # also of base64, and UnsupportedAlgorithm is none: the key has been read
        return None
    return certificate.public_bytes(Encoding.DER) if is_of_key else None
