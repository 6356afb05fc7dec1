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
# RFC 9068 section 2.1: no other document signed with our keys is accepted as an access token, here or by a stock verifier.
HEADER_TYPE = "at+jwt"
# Verifying a signature costs more than the rest of a read, and tokens repeat: verified ones are cached.
KEPT = 10_000


class InvalidToken(Exception):
    """The token is not ours, not an access token, or expired."""


class RotatingBackend(TokenBackend):
    """simplejwt's backend with the key chosen by `kid` from our own set; `jku`, `x5u` and `jwk` are ignored."""

    def encode(self, payload: dict[str, Any]) -> str:
        keys = signing.key_set()
        claims = {**payload, "iss": self.issuer, "aud": self.audience}
        header = {"kid": keys.signing_kid, "typ": HEADER_TYPE}
        return jwt.encode(claims, keys.signing_key, algorithm=self.algorithm, headers=header)

    def decode(self, token: Any, verify: bool = True) -> dict[str, object]:
        try:
            header = jwt.get_unverified_header(token)
            # RFC 9068 section 4: with or without the `application/` prefix, in any case.
            if str(header.get("typ")).lower().removeprefix("application/") != HEADER_TYPE:
                raise ValueError("not an access token")
            kid = header["kid"]
            key = signing.key_set(knowing=kid).public_keys[kid]
            claims: dict[str, object] = jwt.decode(
                token,
                key,
                algorithms=[self.algorithm],
                audience=self.audience,
                issuer=self.issuer,
                leeway=self.get_leeway(),
                # `nbf` is checked instead; it is issued with room for clocks that differ.
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
    """An access token (RFC 9068)."""

    token_type = "access"
    lifetime = timedelta(seconds=settings.ACCESS_TOKEN_SECONDS)
    _token_backend = BACKEND


_verified: OrderedDict[str, Claims] = OrderedDict()
_lock = Lock()


def claims_of(token: str) -> Claims:
    """Return the verified claims of an access token. Raises InvalidToken.

    Only the signature is cached: expiry and the validity of the key are checked on every call, and the caller reads the
    state of session, user and tenant from the database.
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
    """Return whether ids are UUIDs or null: a token of another version of the platform must not cause a server error."""
    return (
        FORM.fullmatch(str(claims["sub"])) is not None
        and all(
            claims.get(name) is None or FORM.fullmatch(str(claims[name])) for name in ("sid", "tenant_id", "client_id")
        )
        and all(isinstance(claims[name], str) for name in ("jti", "kind", "typ", "iss", "aud"))
        and (claims["kind"] == principals.CLIENT or claims.get("sid") is not None)
    )
