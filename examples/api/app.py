"""An API that accepts a tenant's access tokens, for plain WSGI. `python app.py` serves it; README.md says what it needs."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import make_server

# --- configuration
import jwt

ISSUER, API = os.environ["OIDC_ISSUER"], os.environ["API_AUDIENCE"]
EXPECTED = {"algorithms": ["ES256"], "issuer": ISSUER, "audience": API, "options": {"require": ["exp", "sub"]}}
keys = jwt.PyJWKClient(f"{ISSUER}/jwks")


def claims_of(token: str) -> dict[str, Any]:
    if jwt.get_unverified_header(token).get("typ") != "at+jwt":
        raise jwt.InvalidTokenError("not an access token")
    return jwt.decode(token, keys.get_signing_key_from_jwt(token), **EXPECTED)


# --- end of configuration


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Return the claims of the caller's token, or 401 (RFC 6750 section 3)."""
    scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    try:
        if scheme.lower() != "bearer":
            raise jwt.InvalidTokenError("no token")
        claims = claims_of(token)
    except jwt.PyJWKClientConnectionError:
        start_response("503 Service Unavailable", [("Retry-After", "5")])
        return [b""]
    except jwt.PyJWTError:
        challenge = 'Bearer error="invalid_token"' if token else 'Bearer realm="api"'
        start_response("401 Unauthorized", [("WWW-Authenticate", challenge)])
        return [b""]
    body = json.dumps({"sub": claims["sub"], "scope": claims.get("scope", "")}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


if __name__ == "__main__":
    make_server("127.0.0.1", int(os.environ.get("PORT", "8003")), application).serve_forever()
