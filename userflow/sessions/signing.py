"""Create, seal and rotate signing keys, and cache the set that this process signs and verifies with."""

import base64
import hashlib
import re
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
from tenants.settings import LONGEST_ACCESS_TOKEN_SECONDS
from userflow.accounts.principals import Principal
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.models import SigningKey

ALGORITHM = "ES256"
# How long a process uses the set that it has read. A token with an unknown key makes it read again at once.
FRESH_SECONDS = 10.0
# A new key is published this long before it signs, so that verifiers that cache the JWKS have it in time.
PUBLISH_AHEAD = timedelta(minutes=10)
# The longest lifetime of an access token that a tenant can set. A key verifies for this long after its last signature.
LONGEST_TOKEN = timedelta(seconds=max(LONGEST_ACCESS_TOKEN_SECONDS, settings.ACCESS_TOKEN_SECONDS))
MAKING_LOCK = 7_215_002
THUMBPRINT = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class KeySet:
    """What this process signs and verifies with."""

    signing_kid: str
    signing_key: ec.EllipticCurvePrivateKey
    public_keys: dict[str, ec.EllipticCurvePublicKey]
    jwks: list[dict[str, object]]
    read_at: float


_current: KeySet | None = None
_lock = threading.Lock()


def _b64(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes(32, "big")).rstrip(b"=").decode()


def _jwk(public: ec.EllipticCurvePublicKey) -> dict[str, str]:
    numbers = public.public_numbers()
    return {"crv": "P-256", "kty": "EC", "x": _b64(numbers.x), "y": _b64(numbers.y)}


def _thumbprint(jwk: dict[str, str]) -> str:
    """RFC 7638 section 3: SHA-256 over the required fields in lexicographic order."""
    canonical = orjson.dumps({name: jwk[name] for name in ("crv", "kty", "x", "y")})
    return base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()


def _context(kid: str) -> SealContext:
    return SealContext(tenant="platform", table="userflow_signingkey", column="private_sealed", row=kid)


def make_key(*, signs_from: datetime) -> SigningKey:
    """Create a key pair that signs from `signs_from` on; the private key is sealed before it is stored."""
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


def rotate_signing_keys(*, at_once: bool = False, by: Principal | None = None) -> SigningKey:
    """Create the next signing key; earlier keys verify until their last tokens have expired.

    `at_once` skips the time in which verifiers that cache the JWKS fetch the new key. It does not end the old keys;
    `withdraw_signing_key` does. Raises InsufficientAuthentication.
    """
    require_assurance(Action.ROTATE_KEYS, by)
    moment = now()
    signs_from = moment if at_once else moment + PUBLISH_AHEAD
    with transaction.atomic():
        key = make_key(signs_from=signs_from)
        SigningKey.objects.exclude(pk=key.pk).filter(verifies_until=None).update(
            verifies_until=signs_from + LONGEST_TOKEN
        )
        record_for_platform("signing_key.rotated", target=("signing_key", key.kid), details={"at_once": at_once})
    forget()
    return key


def withdraw_signing_key(*, kid: str, by: Principal | None = None) -> bool:
    """Reject a key's tokens from now on, for a leaked private key. Return False if no such key is valid.

    Other processes follow within FRESH_SECONDS. If it was the signing key, another one takes over at once.
    Raises InsufficientAuthentication.
    """
    require_assurance(Action.ROTATE_KEYS, by)
    moment = now()
    with transaction.atomic():
        withdrawn = SigningKey.objects.filter(_is_valid(moment), pk=kid).update(verifies_until=moment)
        if withdrawn:
            if not SigningKey.objects.filter(verifies_until=None, signs_from__lte=moment).exists():
                make_key(signs_from=moment)
            record_for_platform("signing_key.withdrawn", target=("signing_key", kid))
    forget()
    return bool(withdrawn)


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """A valid key and its state: `next`, `signing` or `verifying`."""

    kid: str
    state: str
    signs_from: datetime
    verifies_until: datetime | None


def signing_key_status() -> list[KeyStatus]:
    """Return the keys that are valid now, oldest first."""
    valid = _valid(now())
    signing = _signing(valid, now())
    return [
        KeyStatus(
            key.kid,
            "signing" if key is signing else ("next" if key.signs_from > now() else "verifying"),
            key.signs_from,
            key.verifies_until,
        )
        for key in valid
    ]


def _is_valid(moment: datetime) -> Q:
    return Q(verifies_until=None) | Q(verifies_until__gt=moment)


def _valid(moment: datetime) -> list[SigningKey]:
    return list(SigningKey.objects.filter(_is_valid(moment)).order_by("created_at", "kid"))


def _signing(valid: list[SigningKey], moment: datetime) -> SigningKey | None:
    # The newest by creation, not by start: a rotation at once overtakes one that was published before it.
    return next((key for key in reversed(valid) if key.signs_from <= moment), None)


def _read() -> KeySet:
    moment = now()
    valid = _valid(moment)
    signing = _signing(valid, moment)
    if signing is None:
        with transaction.atomic(), connection.cursor() as cursor:
            # Two processes at their first start must not create two keys.
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
    """Return the keys of this process; read again when they are old, or when `knowing` is a stored key that they lack.

    Another process may have rotated a moment ago, so an unknown `kid` is looked up by primary key before its token is
    rejected.
    """
    global _current
    found = _current
    if found is not None and time.monotonic() - found.read_at < FRESH_SECONDS:
        if knowing is None or knowing in found.public_keys:
            return found
        if not THUMBPRINT.fullmatch(knowing) or not SigningKey.objects.filter(_is_valid(now()), pk=knowing).exists():
            return found
    with _lock:
        if _current is not None and _current is not found:
            return _current
        fresh = _read()
        _current = fresh
        return fresh


def forget() -> None:
    """Read the keys again at the next use."""
    global _current
    _current = None
