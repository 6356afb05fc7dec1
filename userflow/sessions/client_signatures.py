"""JWTs that clients sign with their own keys (RFC 7515): assertions (RFC 7523) and request objects (RFC 9101).

Raw PyJWT is narrowed here to the keys and algorithms of the client, and to dates that are numbers.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import jwt

from userflow.accounts.principals import is_numeric_date
from userflow.accounts.security_profiles import SecurityProfile
from userflow.sessions.client_keys import SIGNING_ALGORITHMS, ClientKey, KeySetInvalid, read_key_set
from userflow.sessions.published_keys import published_keys

# Clocks of clients may differ by this much.
LEEWAY: Final = 30


class SignatureInvalid(Exception):
    """The token is no JWT that a key of this client has signed; the text says why."""


class Unsigned(SignatureInvalid):
    """The token says that it is not signed (`alg: none`)."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a JWT says, unverified."""

    algorithm: str
    kid: str | None
    # In lower case, without "application/" (RFC 7515 section 4.1.9).
    type: str | None


def read_header(token: str, profile: SecurityProfile) -> Header:
    """Return the header of a token that a client with this security profile may sign. Raises SignatureInvalid."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError) as problem:
        raise SignatureInvalid("it is no signed JWT") from problem
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if algorithm == "none":
        raise Unsigned("it is not signed")
    if algorithm not in SIGNING_ALGORITHMS or not profile.allows(str(algorithm)):
        raise SignatureInvalid("its algorithm is not allowed for this client")
    if not isinstance(kid, str | None) or not isinstance(kind, str | None) or "crit" in header:
        raise SignatureInvalid("its header is not understood")
    return Header(str(algorithm), kid, None if kind is None else kind.lower().removeprefix("application/"))


def keys_of_client(
    client_id: UUID, jwks: dict[str, object], jwks_uri: str, kid: str | None, authorities: str
) -> tuple[ClientKey, ...]:
    """Return the keys that a client has registered, or those that it publishes. Raises SignatureInvalid, ClientKeysBusy."""
    if not jwks:
        return published_keys(client_id, jwks_uri, kid, authorities=authorities) if jwks_uri else ()
    try:
        return read_key_set(jwks)
    except KeySetInvalid as problem:
        raise SignatureInvalid("the registered keys of the client cannot be read") from problem


def verified_claims(
    token: str, header: Header, keys: Collection[ClientKey], *, client_id: str, required: Collection[str]
) -> dict[str, object]:
    """Return the claims of a token whose issuer is the client; the audience is left to the caller.

    `required` claims are there, and every date is a number and allows the token now. Raises SignatureInvalid.
    """
    reason = "no key of the client has signed it"
    for key in keys:
        if header.algorithm not in key.algorithms or (header.kid is not None and key.kid != header.kid):
            continue
        try:
            claims: dict[str, object] = jwt.decode(
                token,
                key.key.key,
                algorithms=[header.algorithm],
                issuer=client_id,
                leeway=LEEWAY,
                options={"require": list(required), "verify_aud": False, "verify_sub": False},
            )
        except jwt.InvalidSignatureError:
            continue
        except (jwt.InvalidTokenError, ValueError, TypeError, OverflowError) as problem:
            reason = _reason(problem)
            continue
        if not all(is_numeric_date(claims[name]) for name in ("exp", "nbf", "iat") if name in claims):
            raise SignatureInvalid("exp, nbf and iat must be numbers of seconds")
        return claims
    raise SignatureInvalid(reason)


def _reason(problem: Exception) -> str:
    """Return what is wrong with a token whose signature is right, in characters that RFC 6749 allows in descriptions."""
    match problem:
        case jwt.MissingRequiredClaimError():
            return f"its claim {problem.claim} is missing"
        case jwt.ExpiredSignatureError():
            return "it has expired (exp)"
        case jwt.ImmatureSignatureError():
            return "it is not valid yet (nbf or iat)"
        case jwt.InvalidIssuerError():
            return "its iss must be the client"
    return "its claims cannot be read"
