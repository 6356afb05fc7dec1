"""Our token classes over djangorestframework-simplejwt: asymmetric, with `kid`, issuer and audience always checked."""

from collections import OrderedDict
from datetime import timedelta
from threading import Lock
from time import time
from typing import Any, cast

import jwt
from django.conf import settings
from rest_framework_simplejwt.backends import TokenBackend
from rest_framework_simplejwt.exceptions import TokenBackendError, TokenError
from rest_framework_simplejwt.tokens import Token

from userflow.accounts import principals
from userflow.accounts.principals import Claims
from userflow.ids import FORM
from userflow.sessions import signing

REQUIRED_CLAIMS = ["exp", "iat", "nbf", "iss", "aud", "sub", "jti", "typ", "kind"]
# RFC 9068 section 2.1: nothing else that is signed with our keys passes for an access token, here or in a stock verifier.
HEADER_TYPE = "at+jwt"
# A signature costs more than everything else on a read (performance.md); tokens repeat, so verified ones are kept.
KEPT = 10_000


class InvalidToken(Exception):
    """Not one of our tokens, not of this class, or past its time."""


class RotatingBackend(TokenBackend):
    """simplejwt's backend with the key chosen by `kid` out of our own set; `jku`, `x5u`, `jwk` are never followed."""

    def encode(self, payload: dict[str, Any]) -> str:
        keys = signing.key_set()
        claims = {**payload, "iss": self.issuer, "aud": self.audience}
        header = {"kid": keys.signing_kid, "typ": HEADER_TYPE}
        return jwt.encode(claims, keys.signing_key, algorithm=self.algorithm, headers=header)

    def decode(self, token: Any, verify: bool = True) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            # RFC 9068 section 4: with or without the `application/` prefix, in any case.
            if str(header.get("typ")).lower().removeprefix("application/") != HEADER_TYPE:
                raise ValueError("not an access token")
            kid = header["kid"]
            key = signing.key_set(knowing=kid).public_keys[kid]
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[self.algorithm],
                audience=self.audience,
                issuer=self.issuer,
                leeway=self.get_leeway(),
                # `iat` says when, not from when; `nbf` does that and is issued with room for clocks that step.
                options={"require": REQUIRED_CLAIMS, "verify_signature": verify, "verify_iat": False},
            )
        except (jwt.InvalidTokenError, KeyError, TypeError, ValueError) as problem:
            raise TokenBackendError("The token is not valid.") from problem
        return claims


BACKEND = RotatingBackend(
    algorithm=signing.ALGORITHM,
    audience=settings.TOKEN_AUDIENCE,
    issuer=settings.TOKEN_ISSUER,
)


class AccessToken(Token):
    """Speaks for a principal at the API (RFC 9068)."""

    token_type = "access"
    lifetime = timedelta(seconds=settings.ACCESS_TOKEN_SECONDS)
    _token_backend = BACKEND


_verified: OrderedDict[str, Claims] = OrderedDict()
_lock = Lock()


def claims_of(token: str) -> Claims:
    """The verified claims of an access token; InvalidToken otherwise.

    Only the signature is remembered: expiry and the key's validity are checked on every call, and whether session, user
    and tenant still stand is read from the store by the caller.
    """
    with _lock:
        known = _verified.get(token)
    if known is not None and known["exp"] > time() and known["kid"] in signing.key_set().public_keys:
        return known
    try:
        claims = cast(Claims, dict(AccessToken(token).payload))  # type: ignore[arg-type]  # simplejwt's stub wants its own Token
        claims["kid"] = jwt.get_unverified_header(token)["kid"]
    except (TokenError, TokenBackendError) as problem:
        raise InvalidToken from problem
    if not _well_formed(claims):
        raise InvalidToken
    with _lock:
        _verified[token] = claims
        if len(_verified) > KEPT:
            _verified.popitem(last=False)
    return claims


def _well_formed(claims: Claims) -> bool:
    """Ids are UUIDs, or null where they may be; what is signed by another version of us must not end as a fault."""
    return (
        FORM.fullmatch(str(claims["sub"])) is not None
        and all(
            claims.get(name) is None or FORM.fullmatch(str(claims[name])) for name in ("sid", "tenant_id", "client_id")
        )
        and all(isinstance(claims[name], str) for name in ("jti", "kind", "typ", "iss", "aud"))
        and (claims["kind"] == principals.CLIENT or claims.get("sid") is not None)
    )
