"""Signing keys: made, sealed, rotated; and the set that this process signs and verifies with."""

import base64
import hashlib
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from django.utils.timezone import now

from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import SealContext, seal, unseal
from tenants import keys
from userflow.tokens.models import SigningKey

ALGORITHM = "ES256"
# How long a process may go on with the set it has read. A token of a key it has not seen makes it look at once.
FRESH_SECONDS = 10.0
# A new key is published this long before it signs, so that verifiers that cache the JWKS know it in time.
PUBLISH_AHEAD = timedelta(minutes=10)
MAKING_LOCK = 7_215_002


@dataclass(frozen=True, slots=True)
class KeySet:
    """What this process signs and verifies with."""

    signing_kid: str
    signing_key: ec.EllipticCurvePrivateKey
    public_keys: dict[str, ec.EllipticCurvePublicKey]
    jwks: list[dict[str, Any]]
    read_at: float


_current: KeySet | None = None
_lock = threading.Lock()


def _b64(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes(32, "big")).rstrip(b"=").decode()


def _jwk(public: ec.EllipticCurvePublicKey) -> dict[str, str]:
    numbers = public.public_numbers()
    return {"crv": "P-256", "kty": "EC", "x": _b64(numbers.x), "y": _b64(numbers.y)}


def _thumbprint(jwk: dict[str, str]) -> str:
    """RFC 7638 section 3: SHA-256 over the required members in lexicographic order."""
    canonical = orjson.dumps({name: jwk[name] for name in ("crv", "kty", "x", "y")})
    return base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()


def _context(kid: str) -> SealContext:
    return SealContext(tenant="platform", table="userflow_signingkey", column="private_sealed", row=kid)


def make_key(*, signs_from: datetime) -> SigningKey:
    """A new key pair that signs from then on; the private half is sealed before it is stored."""
    private = ec.generate_private_key(ec.SECP256R1())
    jwk = _jwk(private.public_key())
    kid = _thumbprint(jwk)
    raw = private.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return SigningKey.objects.create(
        kid=kid,
        public_jwk={**jwk, "use": "sig", "alg": ALGORITHM, "kid": kid},
        private_sealed=seal(raw, data_key=keys.platform_key(), context=_context(kid)),
        signs_from=signs_from,
    )


def rotate_signing_keys(*, at_once: bool = False) -> SigningKey:
    """Make the next signing key; the ones before it verify until their last tokens have expired.

    `at_once` skips the time in which verifiers learn of the new key; it is right when the old key must go.
    """
    moment = now()
    signs_from = moment if at_once else moment + PUBLISH_AHEAD
    longest = timedelta(seconds=max(settings.REFRESH_TOKEN_SECONDS, settings.ACCESS_TOKEN_SECONDS))
    with transaction.atomic():
        key = make_key(signs_from=signs_from)
        SigningKey.objects.exclude(pk=key.pk).filter(verifies_until=None).update(verifies_until=signs_from + longest)
        record_for_platform("signing_key.rotated", target=("signing_key", key.kid))
    forget()
    return key


def _read() -> KeySet:
    moment = now()
    valid = list(
        SigningKey.objects.filter(Q(verifies_until=None) | Q(verifies_until__gt=moment)).order_by("signs_from", "kid")
    )
    signing = next((key for key in reversed(valid) if key.signs_from <= moment), None)
    if signing is None:
        with transaction.atomic(), connection.cursor() as cursor:
            # Two processes at their first start must not make two keys.
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [MAKING_LOCK])
            if not SigningKey.objects.filter(verifies_until=None, signs_from__lte=moment).exists():
                make_key(signs_from=moment)
        return _read()
    private = serialization.load_der_private_key(
        unseal(bytes(signing.private_sealed), data_key=keys.platform_key(), context=_context(signing.kid)), None
    )
    assert isinstance(private, ec.EllipticCurvePrivateKey)  # the only kind that make_key stores
    return KeySet(
        signing_kid=signing.kid,
        signing_key=private,
        public_keys={key.kid: _public(key.public_jwk) for key in valid},
        jwks=[key.public_jwk for key in valid],
        read_at=time.monotonic(),
    )


def _public(jwk: dict[str, Any]) -> ec.EllipticCurvePublicKey:
    x, y = (int.from_bytes(base64.urlsafe_b64decode(jwk[name] + "="), "big") for name in ("x", "y"))
    return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()


def key_set(*, knowing: str | None = None) -> KeySet:
    """The set of this process: read again when it is old, or (at most once a second) when `knowing` is not in it."""
    global _current
    found = _current
    if found is not None:
        age = time.monotonic() - found.read_at
        if age < FRESH_SECONDS and (knowing is None or knowing in found.public_keys or age < 1.0):
            return found
    with _lock:
        if _current is found:
            _current = _read()
        assert _current is not None  # set above or by the thread that held the lock
        return _current


def forget() -> None:
    """Read the keys again at the next use."""
    global _current
    _current = None
