"""private_key_jwt: clients that authenticate with a JWT signed by their key (RFC 7523 section 3, RFC 7521 section 4.2).

Signed JWTs of clients are narrowed here to: one audience, which is this issuer (CVE-2025-27370: an assertion for several
servers could be used by one of them at another); a lifetime of an hour at most; and a `jti` that Valkey has not seen.
"""

import hashlib
import time
from typing import Final, cast
from uuid import UUID

import jwt
import redis

from identity_platform.api import valkey
from tenants.addresses.issuers import issuer_of
from tenants.entering.lookup import TenantContext
from userflow.accounts.security_profiles import SecurityProfile
from userflow.errors import AssertionsUnavailable
from userflow.sessions.client_signatures import LEEWAY, SignatureInvalid, keys_of_client, read_header, verified_claims
from userflow.sessions.request_objects import TYPE as REQUEST_OBJECT

TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
LONGEST: Final = 8192
# Authlib signs for an hour, without a way to change it that also renews the `jti`. Each works once for all that time.
LONGEST_SECONDS: Final = 3600
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
        header = read_header(assertion, profile)
        keys = keys_of_client(client_id, jwks, jwks_uri, header.kid, tenant.authorities)
        claims = verified_claims(
            assertion, header, keys, client_id=str(client_id), required=("iss", "sub", "aud", "exp", "jti")
        )
    except SignatureInvalid as problem:
        raise AssertionInvalid from problem
    if header.type == REQUEST_OBJECT:
        raise AssertionInvalid
    audiences = {issuer_of(tenant)}
    if not profile.issuer_is_only_audience:
        audiences |= {f"{tenant.root}/token", endpoint} - {""}
    if claims["sub"] != str(client_id) or not _is_for(audiences, claims["aud"]):
        raise AssertionInvalid
    if cast(float, claims["exp"]) > time.time() + LONGEST_SECONDS + LEEWAY:
        raise AssertionInvalid
    if profile.issuer_is_only_audience and not isinstance(claims["aud"], str):
        raise AssertionInvalid
    _use(client_id, claims)


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
