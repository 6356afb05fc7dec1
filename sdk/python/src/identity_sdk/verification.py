"""Verify access tokens (RFC 9068) in your own API with the published keys; no call to the platform per request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import jwt

from identity_sdk.errors import AccessDenied
from identity_sdk.keys import KeysUnavailable, PublishedKeys
from identity_sdk.transport import checked_url, shared_http

TYPES = ("at+jwt", "application/at+jwt")
KINDS = ("operator", "admin", "end_user", "client")
REQUIRED = ["iss", "aud", "sub", "exp", "iat", "jti"]
# What a made-up token can cause: a lone surrogate is a ValueError, an object in place of text a TypeError.
MALFORMED = (jwt.PyJWTError, ValueError, TypeError, RecursionError)


@dataclass(frozen=True)
class Principal:
    """The subject of a verified token. Changes since its issue, such as a removed role, show in the next token."""

    id: str
    # `operator`, `admin`, `end_user` or `client`.
    kind: str
    tenant_id: str | None
    client_id: str | None
    permissions: frozenset[str]
    claims: Mapping[str, Any] = field(hash=False)

    # What Django and Django REST framework ask of `request.user`.
    is_authenticated = is_active = True
    is_anonymous = is_staff = is_superuser = False

    @property
    def pk(self) -> str:
        return self.id


class Verifier:
    """Verifies the tokens of one issuer: `https://<host>/t/<slug>` for a tenant's end users and clients.

    The keys are those of the issuer's metadata (RFC 8414), cached for five minutes, or 15 while they cannot be fetched; a
    token with an unknown key causes another fetch, at most every 30 seconds. One thread fetches; the others use the cached
    keys, or get AccessDenied (503) if theirs is not among them. Threads may share it.
    """

    def __init__(
        self,
        issuer: str,
        *,
        audience: str = "identity-api",
        jwks_uri: str | None = None,
        algorithms: Iterable[str] = ("ES256",),
        leeway: float = 5,
        http: httpx2.Client | None = None,
    ) -> None:
        # PyJWT does not verify an issuer or audience that is None.
        if not isinstance(audience, str) or not audience:
            raise ValueError("audience must be a non-empty string.")
        self.issuer, self.audience = checked_url("issuer", issuer), audience
        self._algorithms, self._leeway = list(algorithms), leeway
        uri = None if jwks_uri is None else checked_url("jwks_uri", jwks_uri)
        self._keys = PublishedKeys(issuer, uri, http or shared_http())

    def authorize(self, authorization: str | None, *permissions: str) -> Principal:
        """Verify the header Authorization of a request and require these permissions. Raises AccessDenied."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            message = "Send a valid access token: `Authorization: Bearer …`."
            raise AccessDenied(401, "unauthorized", message, 'Bearer realm="api"')
        principal = self.verify(token.strip())
        require(principal, *permissions)
        return principal

    def verify(self, token: str) -> Principal:
        """Verify a token: signature, type, algorithm, issuer, audience and times. Raises AccessDenied."""
        try:
            return self._verified(token)
        except KeysUnavailable as error:
            raise AccessDenied(503, "keys_unavailable", "The keys of the issuer cannot be fetched.") from error
        except MALFORMED as error:
            message = "The access token is invalid or has expired."
            raise AccessDenied(401, "invalid_token", message, 'Bearer error="invalid_token"') from error

    def _verified(self, token: str) -> Principal:
        header = jwt.get_unverified_header(token)
        kid = header.get("kid")
        # Checked before the key is looked up: an unknown one may cause a fetch.
        if str(header.get("typ", "")).lower() not in TYPES or header.get("alg") not in self._algorithms or not kid:
            raise jwt.InvalidTokenError("The token is not an access token of the platform.")
        key = self._keys.find(kid)
        if key is None:
            raise jwt.InvalidTokenError("The issuer has no such key.")
        claims = jwt.decode(
            token,
            key,
            algorithms=self._algorithms,
            issuer=self.issuer,
            audience=self.audience,
            leeway=self._leeway,
            options={"require": REQUIRED},
        )
        if "cnf" in claims:
            raise jwt.InvalidTokenError("The token is bound to a key (DPoP), which is not verified here.")
        kind, permissions = claims.get("kind"), claims.get("permissions", [])
        if kind not in KINDS:
            raise jwt.InvalidTokenError("The token is of an unknown kind of subject.")
        # Text would become the set of its letters.
        if not isinstance(permissions, list) or not all(isinstance(each, str) for each in permissions):
            raise jwt.InvalidTokenError("The permissions are not a list of strings.")
        return Principal(
            id=claims["sub"],
            kind=kind,
            tenant_id=claims.get("tenant_id"),
            client_id=claims.get("client_id"),
            permissions=frozenset(permissions),
            claims=claims,
        )


def require(principal: Principal, *permissions: str) -> None:
    """Raise AccessDenied (403) unless the principal has all of these permissions."""
    missing = [permission for permission in permissions if permission not in principal.permissions]
    if missing:
        challenge = f'Bearer error="insufficient_scope", scope="{" ".join(permissions)}"'
        message = f"The access token lacks the permission {', '.join(missing)}."
        raise AccessDenied(403, "insufficient_scope", message, challenge)
