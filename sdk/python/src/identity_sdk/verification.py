"""Verify access tokens (RFC 9068) in your own API with the published keys; no call to the platform per request."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jwt

from identity_sdk.errors import AccessDenied

TYPES = ("at+jwt", "application/at+jwt")
# Network errors, and keys or metadata that cannot be read.
UNAVAILABLE = (httpx2.HTTPError, jwt.PyJWKClientConnectionError, jwt.PyJWKSetError, ValueError, KeyError)
REQUIRED = ["iss", "aud", "sub", "exp", "iat", "jti"]


@dataclass(frozen=True)
class Principal:
    """The subject of a verified token. Changes since its issue, such as a removed role, show in the next token."""

    id: str
    # `operator`, `admin`, `end_user` or `client`.
    kind: str
    tenant_id: str | None
    client_id: str | None
    permissions: frozenset[str]
    claims: Mapping[str, Any]

    # What Django REST framework asks of `request.user`.
    is_authenticated = True

    @property
    def pk(self) -> str:
        return self.id


class Verifier:
    """Verifies the tokens of one issuer: `https://<host>/t/<slug>` for a tenant's end users and clients.

    The keys are those of the issuer's metadata (RFC 8414), cached for five minutes; a token with an unknown key causes
    another fetch, at most every 30 seconds. Threads may share it.
    """

    def __init__(
        self,
        issuer: str,
        *,
        audience: str = "identity-api",
        jwks_uri: str | None = None,
        algorithms: Iterable[str] = ("ES256",),
        leeway: float = 5,
    ) -> None:
        self.issuer, self.audience = issuer, audience
        self._algorithms, self._leeway = list(algorithms), leeway
        self._keys = jwt.PyJWKClient(jwks_uri, timeout=10) if jwks_uri else None
        self._lock = threading.Lock()

    def authorize(self, authorization: str | None, *permissions: str) -> Principal:
        """Verify the header Authorization of a request and require these permissions. Raises AccessDenied."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise AccessDenied(401, "unauthorized", "Send a valid access token: `Authorization: Bearer …`.", "Bearer")
        principal = self.verify(token.strip())
        require(principal, *permissions)
        return principal

    def verify(self, token: str) -> Principal:
        """Verify a token: signature, type, algorithm, issuer, audience and times. Raises AccessDenied."""
        try:
            header = jwt.get_unverified_header(token)
            if str(header.get("typ", "")).lower() not in TYPES:
                raise jwt.InvalidTokenError("The token is not an access token.")
            key = self._client().get_signing_key(str(header.get("kid")))
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
        except UNAVAILABLE as error:
            raise AccessDenied(503, "keys_unavailable", "The keys of the issuer cannot be fetched.") from error
        except (jwt.InvalidTokenError, jwt.PyJWKClientError) as error:
            challenge = 'Bearer error="invalid_token"'
            raise AccessDenied(
                401, "invalid_token", "The access token is invalid or has expired.", challenge
            ) from error
        return Principal(
            id=claims["sub"],
            kind=str(claims.get("kind", "")),
            tenant_id=claims.get("tenant_id"),
            client_id=claims.get("client_id"),
            permissions=frozenset(claims.get("permissions", ())),
            claims=claims,
        )

    def _client(self) -> jwt.PyJWKClient:
        with self._lock:
            if self._keys is None:
                place = urlsplit(self.issuer)
                url = f"{place.scheme}://{place.netloc}/.well-known/oauth-authorization-server{place.path}"
                response = httpx2.get(url, timeout=10).raise_for_status()
                metadata = response.json()
                if metadata["issuer"] != self.issuer:
                    raise httpx2.HTTPError(f"The metadata is of another issuer: {metadata['issuer']}")
                self._keys = jwt.PyJWKClient(metadata["jwks_uri"], timeout=10)
            return self._keys


def require(principal: Principal, *permissions: str) -> None:
    """Raise AccessDenied (403) unless the principal has all of these permissions."""
    missing = [permission for permission in permissions if permission not in principal.permissions]
    if missing:
        challenge = f'Bearer error="insufficient_scope", scope="{" ".join(permissions)}"'
        message = f"The access token lacks the permission {', '.join(missing)}."
        raise AccessDenied(403, "insufficient_scope", message, challenge)
