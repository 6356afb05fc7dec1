"""private_key_jwt: clients that authenticate with a JWT signed by their key (RFC 7523 section 3, RFC 7521 section 4.2).

Raw PyJWT is narrowed here to: one audience, which is this issuer (CVE-2025-27370: an assertion for several servers could be
used by one of them at another); a lifetime of an hour at most; and a `jti` that Valkey has not seen.
"""

import hashlib
import time
from typing import Final, cast
from uuid import UUID

import jwt
import redis

from identity_platform.api import valkey
from tenants.issuers import issuer_of
from tenants.lookup import TenantContext
from userflow.accounts.principals import is_numeric_date
from userflow.accounts.security_profiles import SecurityProfile
from userflow.errors import AssertionsUnavailable
from userflow.sessions.client_keys import SIGNING_ALGORITHMS, ClientKey, KeySetInvalid, read_key_set
from userflow.sessions.published_keys import published_keys

TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
LONGEST: Final = 8192
# Authlib signs for an hour, without a way to change it that also renews the `jti`. Each works once for all that time.
LONGEST_SECONDS: Final = 3600
# Clocks of clients may differ by this much.
LEEWAY: Final = 30
_LONGEST_JTI: Final = 1024


class AssertionInvalid(Exception):
    """The assertion does not authenticate the client. Callers tell no reason."""


def subject_of_assertion(assertion: str) -> str | None:
    """Return the client that an assertion names, unverified: RFC 7521 section 4.2 allows to omit `client_id`."""
    try:
        subject = jwt.decode(assertion, options={"verify_signature": False}).get("sub")
    except (jwt.InvalidTokenError, ValueError):
        return None
    return subject if isinstance(subject, str) else None


def check_assertion(
    assertion: str,
    *,
    client_id: UUID,
    tenant: TenantContext,
    jwks: dict[str, object],
    jwks_uri: str,
    profile: SecurityProfile,
    endpoint: str = "",
) -> None:
    """Check an assertion of a client, and use it up.

    Its audience is the issuer of the tenant or its token endpoint, or `endpoint`, the one that it was sent to; the issuer
    alone, as a string, if the client's security profile demands that (FAPI 2.0 Security Profile section 5.3.2.1).
    Raises AssertionInvalid, AssertionsUnavailable (Valkey does not answer, so a replay could not be seen),
    ClientKeysBusy.
    """
    try:
        header = jwt.get_unverified_header(assertion)
    except (jwt.InvalidTokenError, ValueError) as problem:
        raise AssertionInvalid from problem
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in SIGNING_ALGORITHMS or not isinstance(kid, str | None) or "crit" in header:
        raise AssertionInvalid
    if not profile.allows(str(algorithm)):
        raise AssertionInvalid
    audiences = {issuer_of(tenant)}
    if not profile.issuer_is_only_audience:
        audiences |= {f"{tenant.root}/token", endpoint} - {""}
    claims = _verified(
        assertion,
        _keys(client_id, jwks, jwks_uri, kid, tenant.authorities),
        str(algorithm),
        kid,
        str(client_id),
        audiences,
    )
    if profile.issuer_is_only_audience and not isinstance(claims["aud"], str):
        raise AssertionInvalid
    _use(client_id, claims)


def _keys(
    client_id: UUID, jwks: dict[str, object], jwks_uri: str, kid: str | None, authorities: str
) -> tuple[ClientKey, ...]:
    if not jwks:
        return published_keys(client_id, jwks_uri, kid, authorities=authorities) if jwks_uri else ()
    try:
        return read_key_set(jwks)
    except KeySetInvalid as problem:
        raise AssertionInvalid from problem


def _verified(
    assertion: str, keys: tuple[ClientKey, ...], algorithm: str, kid: str | None, client_id: str, audiences: set[str]
) -> dict[str, object]:
    for key in keys:
        if algorithm not in key.algorithms or (kid is not None and key.kid != kid):
            continue
        try:
            claims: dict[str, object] = jwt.decode(
                assertion,
                key.key.key,
                algorithms=[algorithm],
                issuer=client_id,
                subject=client_id,
                leeway=LEEWAY,
                options={"require": ["iss", "sub", "aud", "exp", "jti"], "verify_aud": False},
            )
        except (jwt.InvalidTokenError, ValueError, TypeError, OverflowError):
            continue
        if not all(is_numeric_date(claims[name]) for name in ("exp", "nbf", "iat") if name in claims):
            raise AssertionInvalid
        if _is_for(audiences, claims["aud"]) and cast(float, claims["exp"]) <= time.time() + LONGEST_SECONDS + LEEWAY:
            return claims
    raise AssertionInvalid


def _is_for(audiences: set[str], audience: object) -> bool:
    """Return whether the audience is one of these (RFC 7523 section 3), and nothing else."""
    if isinstance(audience, list) and len(audience) == 1:
        audience = audience[0]
    return isinstance(audience, str) and audience in audiences


def _use(client_id: UUID, claims: dict[str, object]) -> None:
    jti = claims["jti"]
    if not isinstance(jti, str) or not 0 < len(jti) <= _LONGEST_JTI:
        raise AssertionInvalid
    name = f"assertion:{client_id}:{hashlib.sha256(jti.encode('utf-8', 'surrogatepass')).hexdigest()}"
    try:
        first = valkey.client().set(name, 1, nx=True, ex=LONGEST_SECONDS + 2 * LEEWAY + 1)
    except (redis.RedisError, OSError) as problem:
        raise AssertionsUnavailable from problem
    if not first:
        raise AssertionInvalid
