"""Our token classes over djangorestframework-simplejwt: asymmetric, with `kid`, issuer and audience always checked."""

import base64
from collections import OrderedDict
from collections.abc import Collection, Mapping
from datetime import timedelta
from threading import Lock
from time import time
from typing import cast
from uuid import UUID

import jwt
import orjson
from django.conf import settings
from rest_framework_simplejwt.backends import TokenBackend
from rest_framework_simplejwt.exceptions import TokenBackendError, TokenError
from rest_framework_simplejwt.tokens import Token

from tenants.addresses.issuers import issuer_of
from userflow.accounts import principals
from userflow.accounts.principals import Claims
from userflow.ids import FORM
from userflow.sessions import signing
from userflow.sessions.key_pairs import ES256

REQUIRED_CLAIMS = ["exp", "iat", "nbf", "iss", "aud", "sub", "jti", "typ", "kind"]
# RFC 9068 section 2.1: no other document signed with our keys is accepted as an access token, here or by a stock verifier.
HEADER_TYPE = "at+jwt"
# Verifying a signature costs more than the rest of a read, and tokens repeat: verified ones are cached.
# One takes 3.6 KB, so they take at most 15 MB of a process.
KEPT = 4096


class InvalidToken(Exception):
    """The token is not ours, not an access token, or expired."""


class IssuerBackend(TokenBackend):
    """simplejwt's backend with the keys of the token's issuer, chosen by `kid`; `jku`, `x5u` and `jwk` are ignored."""

    def encode(self, payload: dict[str, object], *, algorithm: str = ES256) -> str:
        signer = signing.signer(_tenant_of(payload), algorithm)
        # The tenant comes first: the first 64 characters of the payload are then the same in all tokens of a tenant, and
        # deploy/nginx.conf sends them to the same worker. (RFC 7519 gives the order of claims no meaning.)
        claims = {"tenant_id": payload["tenant_id"], "aud": self.audience, **payload}
        return jwt.encode(claims, signer.key, algorithm=algorithm, headers={"kid": signer.kid, "typ": HEADER_TYPE})

    def decode(self, token: object, verify: bool = True) -> dict[str, object]:
        try:
            header, unverified = read_unverified(cast(str, token))
            # RFC 9068 section 4: with or without the `application/` prefix, in any case.
            if str(header.get("typ")).lower().removeprefix("application/") != HEADER_TYPE:
                raise ValueError("not an access token")
            tenant_id, kid = _tenant_of(unverified), cast(str, header["kid"])
            verifier = signing.verifier(tenant_id, kid)
            if verifier is None:
                raise ValueError("unknown key")
            claims: dict[str, object] = jwt.decode(
                cast(str, token),
                verifier.key,
                algorithms=[verifier.algorithm],
                # The issuer of a tenant is compared where its row is read (`sessions.verify`): it changes with the slug.
                issuer=None if tenant_id else issuer_of(None),
                leeway=self.get_leeway(),
                # `nbf` is checked instead; it is issued with room for clocks that differ.
                # The audience is checked by the callers: the platform's API is one of several.
                options={
                    "require": REQUIRED_CLAIMS,
                    "verify_signature": verify,
                    "verify_iat": False,
                    "verify_aud": False,
                },
            )
        except (jwt.InvalidTokenError, KeyError, TypeError, ValueError) as problem:
            raise TokenBackendError("The token is not valid.") from problem
        return claims


def read_unverified(token: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return header and payload of a token, of which nothing is verified. Raises ValueError.

    PyJWT does so too, and looks at each character of the token each time.
    """
    parts = token.split(".")
    header, payload = (orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts[:2])
    if not isinstance(header, dict) or not isinstance(payload, dict):
        raise ValueError("not a token")
    return header, payload


def _tenant_of(claims: Mapping[str, object]) -> UUID | None:
    """Return the tenant whose keys sign a token with these claims; None for the platform's keys.

    The claims may be unverified: they choose the keys that must then verify them.
    """
    if claims["kind"] in (principals.OPERATOR, principals.ADMIN):
        return None
    return UUID(str(claims["tenant_id"]))


BACKEND = IssuerBackend(algorithm=ES256, audience=settings.TOKEN_AUDIENCE)


class AccessToken(Token):
    """An access token (RFC 9068)."""

    token_type = "access"
    lifetime = timedelta(seconds=settings.ACCESS_TOKEN_SECONDS)
    _token_backend = BACKEND

    def __init__(self, token: Token | None = None, *, algorithm: str = ES256) -> None:
        super().__init__(token)
        self._algorithm = algorithm

    def __str__(self) -> str:
        return BACKEND.encode(self.payload, algorithm=self._algorithm)


_verified: OrderedDict[str, Claims] = OrderedDict()
_lock = Lock()


def claims_of(token: str) -> Claims:
    """Return the verified claims of an access token for the platform's API. Raises InvalidToken."""
    claims = verified_claims(token)
    if not is_for_platform(claims):
        raise InvalidToken
    return claims


def may_use_platform(client_audiences: Collection[str]) -> bool:
    """Return whether a client may get tokens of its own for the platform's API: one with other audiences only may not."""
    return not client_audiences or settings.TOKEN_AUDIENCE in client_audiences


def is_for_platform(claims: Claims) -> bool:
    """Return whether the platform's API is an audience of a token with these claims."""
    audience = claims.get("aud", ())
    return settings.TOKEN_AUDIENCE in ([audience] if isinstance(audience, str) else audience)


def verified_claims(token: str) -> Claims:
    """Return the verified claims of an access token for any audience. Raises InvalidToken.

    Only the signature is cached: expiry and the validity of the key are checked on every call, and the caller reads the
    state of session, user and tenant from the database.
    """
    with _lock:
        known = _verified.get(token)
    if known is not None and known["exp"] > time():
        if signing.verifier(_tenant_of(known), known["kid"]) is None:
            raise InvalidToken
        return known
    try:
        claims = cast(Claims, dict(AccessToken(token).payload))  # type: ignore[arg-type]  # simplejwt's stub wants its own Token
        claims["kid"] = cast(str, read_unverified(token)[0]["kid"])
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
        and all(isinstance(claims[name], str) for name in ("jti", "kind", "typ", "iss"))
        and (isinstance(claims["aud"], str) or all(isinstance(name, str) for name in claims["aud"]))
        and isinstance(claims.get("scope", ""), str)
        and (claims["kind"] == principals.CLIENT or claims.get("sid") is not None)
    )
