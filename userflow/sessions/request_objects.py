"""Signed authorization requests: the request object of a client, verified (RFC 9101)."""

import time
from collections.abc import Mapping
from typing import Final, cast

import orjson

from tenants.addresses.issuers import issuer_of
from tenants.entering.lookup import TenantContext
from userflow.accounts.models import TenantClient
from userflow.accounts.security_profiles import profile_of
from userflow.sessions.client_signatures import LEEWAY, SignatureInvalid, keys_of_client, read_header, verified_claims

TYPE: Final = "oauth-authz-req+jwt"
LONGEST: Final = 16_384
# FAPI 2.0 Message Signing section 5.3.1 allows as much, also since `nbf`.
LONGEST_SECONDS: Final = 3600
# Claims about the object itself. All others are parameters of the request (RFC 9101 section 4).
_OWN: Final = frozenset({"iss", "aud", "exp", "nbf", "iat", "jti", "sub"})
# An object cannot refer to another one (RFC 9101 section 4).
_NEVER: Final = ("request", "request_uri")


def read_request_object(encoded: str, *, client: TenantClient, tenant: TenantContext) -> list[tuple[str, str]]:
    """Return the parameters in a request object that this client has signed for this tenant, as name and value.

    It names the client as `iss` and `client_id`, the tenant's issuer as `aud`, and ends (`exp`) within an hour. Raises
    SignatureInvalid, whose text says what is wrong, and ClientKeysBusy.
    """
    if len(encoded) > LONGEST:
        raise SignatureInvalid(f"it is longer than {LONGEST} characters")
    profile, client_id = profile_of(client.security_profile), str(client.pk)
    header = read_header(encoded, profile)
    if header.type not in (None, "jwt", TYPE):
        raise SignatureInvalid(f"its typ must be {TYPE}")
    keys = keys_of_client(client.pk, client.jwks, client.jwks_uri, header.kid, tenant.authorities)
    if not keys:
        raise SignatureInvalid("the client has registered no keys")
    required = ("iss", "aud", "exp", "client_id", *(("nbf",) if profile.dated_request_objects else ()))
    claims = verified_claims(encoded, header, keys, client_id=client_id, required=required)
    audience, moment = claims["aud"], time.time()
    if issuer_of(tenant) not in (audience if isinstance(audience, list) else [audience]):
        raise SignatureInvalid("its audience must be the issuer")
    # A client assertion has the client as its subject, and must not serve as a request (RFC 9101 section 10.8).
    if claims["client_id"] != client_id or claims.get("sub") == client_id:
        raise SignatureInvalid("its client_id must be that of the request, and its sub must be missing")
    if cast(float, claims["exp"]) > moment + LONGEST_SECONDS + LEEWAY:
        raise SignatureInvalid("it must end within an hour (exp)")
    if cast(float, claims.get("nbf", moment)) < moment - LONGEST_SECONDS - LEEWAY:
        raise SignatureInvalid("it must not be older than an hour (nbf)")
    if any(name in claims for name in _NEVER):
        raise SignatureInvalid("it must not refer to another request")
    return [pair for name, value in claims.items() if name not in _OWN for pair in _pairs(name, value)]


def _pairs(name: str, value: object) -> list[tuple[str, str]]:
    """Return a member as parameters: numbers and objects (`max_age`, `claims`) as JSON, a list as one for each member."""
    if isinstance(value, list):
        if any(isinstance(member, list) for member in value):
            raise SignatureInvalid(f"its member {name} must not be nested")
        return [pair for member in value for pair in _pairs(name, member)]
    if isinstance(value, str):
        return [(name, value)]
    if isinstance(value, Mapping) or (isinstance(value, int) and not isinstance(value, bool)):
        try:
            return [(name, orjson.dumps(value).decode())]
        except (orjson.JSONEncodeError, RecursionError) as problem:
            raise SignatureInvalid(f"its member {name} cannot be read") from problem
    # null counts as not sent; a parameter is never true, false or a fraction.
    if value is None:
        return []
    raise SignatureInvalid(f"its member {name} must be text")
