"""Proofs of possession of a key at the token endpoint and at resources (DPoP, RFC 9449)."""

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import jwt
from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request

from identity_platform.api.single_use import use_once
from identity_platform.crypto import keyed_digest
from tenants import keys
from tenants.addresses.hosts import tenant_at_host
from userflow.accounts.principals import is_numeric_date
from userflow.accounts.security_profiles import SecurityProfile
from userflow.oauth_errors import DpopNonceRequired, DpopProofInvalid
from userflow.sessions.key_pairs import thumbprint

# By key type; `crv` too, so that no algorithm meets a key of another one.
ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = {
    "ES256": ("EC", "P-256"),
    "RS256": ("RSA", None),
    "EdDSA": ("OKP", "Ed25519"),
}
_PUBLIC_FIELDS: Final = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
_PRIVATE_FIELDS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
LONGEST_PROOF: Final = 8192
LONGEST_JTI: Final = 256
_JTI: Final = re.compile(rf"[\x20-\x7e]{{1,{LONGEST_JTI}}}")
# base64url of moduli of 2048 to 4096 bits.
RSA_LENGTHS: Final = range(342, 684)
# Seconds by which `iat` may differ from now.
IAT_ROOM: Final = 60
NONCE_SECONDS: Final = 300


def check_proof(
    request: HttpRequest | Request,
    *,
    access_token: str | None = None,
    required_jkt: str | None = None,
    profile: SecurityProfile | None = None,
) -> str | None:
    """Return the thumbprint of the key that the request's proof shows, or None without a proof.

    With `access_token` the proof must be for this token (`ath`), with `required_jkt` there must be one by this key, with
    `profile`, that of the client, by an algorithm that it allows. A proof is valid for this method and address only, for a
    minute, and once. Raises DpopProofInvalid, DpopNonceRequired (with DPOP_NONCES), Unavailable (the use of proofs cannot be
    stored).
    """
    dpop_proof = request.META.get("HTTP_DPOP")
    if dpop_proof is None:
        if required_jkt is not None:
            raise DpopProofInvalid("A DPoP proof is required.")
        return None
    jkt, claims = _verified(dpop_proof, profile or SecurityProfile())
    if required_jkt is not None and not hmac.compare_digest(jkt, required_jkt):
        raise DpopProofInvalid("The proof is by another key than the token is bound to.")
    issued_at, jti = claims["iat"], claims["jti"]
    if not is_numeric_date(issued_at) or abs(time.time() - issued_at) > IAT_ROOM:
        raise DpopProofInvalid("`iat` is not the present time.")
    if not isinstance(jti, str) or not _JTI.fullmatch(jti):
        raise DpopProofInvalid(f"`jti` must be 1 to {LONGEST_JTI} printable ASCII characters.")
    if claims["htm"] != request.method:
        raise DpopProofInvalid("`htm` is not the method of the request.")
    # From the settings, never from the Host header.
    if _normalized(claims["htu"]) not in {_normalized(f"{base}{request.path}") for base in _bases(request)}:
        raise DpopProofInvalid("`htu` is not the address of the request.")
    if access_token is not None and claims.get("ath") != _base64url(hashlib.sha256(access_token.encode()).digest()):
        raise DpopProofInvalid("`ath` is not the hash of the access token.")
    if settings.DPOP_NONCES and claims.get("nonce") not in _nonces():
        raise DpopNonceRequired(nonce=_nonces()[0])
    if not use_once("dpop", f"{jkt} {jti}", seconds=2 * IAT_ROOM + 1):
        raise DpopProofInvalid("The proof was used before.")
    return jkt


def _verified(dpop_proof: str, profile: SecurityProfile) -> tuple[str, dict[str, object]]:
    """Return the thumbprint of the key in the proof's header and the claims that it signs. Raises DpopProofInvalid."""
    if len(dpop_proof) > LONGEST_PROOF:
        raise DpopProofInvalid
    try:
        header = jwt.get_unverified_header(dpop_proof)
        jwk, algorithm = header["jwk"], header["alg"]
        if header.get("typ") != "dpop+jwt" or "crit" in header or not isinstance(jwk, dict):
            raise ValueError("header")
        kty, crv = ALGORITHMS[algorithm]
        if not profile.allows(algorithm):
            allowed = " or ".join(filter(profile.allows, ALGORITHMS))
            raise DpopProofInvalid(f"The security profile of this client needs a proof that is signed with {allowed}.")
        if jwk.get("kty") != kty or (crv is not None and jwk.get("crv") != crv) or _PRIVATE_FIELDS & set(jwk):
            raise ValueError("key")
        public = {name: jwk[name] for name in _PUBLIC_FIELDS[kty]}
        if not all(isinstance(value, str) for value in public.values()):
            raise ValueError("key")
        if kty == "RSA" and (len(public["n"]) not in RSA_LENGTHS or len(public["e"]) > 6):
            raise ValueError("size of the key")
        claims: dict[str, object] = jwt.decode(
            dpop_proof,
            jwt.PyJWK(public, algorithm=algorithm),
            algorithms=[algorithm],
            options={
                "require": ["jti", "htm", "htu", "iat"],
                "verify_iat": False,
                "verify_aud": False,
                "verify_iss": False,
            },
        )
    except (jwt.PyJWTError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise DpopProofInvalid from problem
    return thumbprint(public), claims


def _bases(request: HttpRequest | Request) -> tuple[str, ...]:
    tenant = tenant_at_host(request._request if isinstance(request, Request) else request)
    if tenant:
        return (tenant.root,)
    return tuple(filter(None, (settings.BASE_URL, settings.TOKEN_ISSUER, settings.MTLS_BASE_URL)))


def _normalized(address: object) -> tuple[str, str, int | None, str] | None:
    """Return scheme, host, port and path (RFC 9449 section 4.3: without query and fragment); None for no address."""
    try:
        parts = urlsplit(str(address))
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname:
        return None
    default = {"https": 443, "http": 80}.get(parts.scheme)
    return parts.scheme, parts.hostname, port or default, parts.path or "/"


def _base64url(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _nonces() -> list[str]:
    """Return the nonces that are valid now, the newest first. They need no storage: each is a keyed digest of its time."""
    window, key = int(time.time()) // NONCE_SECONDS, keys.platform_key()
    return [_base64url(keyed_digest(str(n), key=key, purpose="dpop nonce")) for n in (window, window - 1)]
