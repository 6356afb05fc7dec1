"""Tokens that only their holder can use: bound to a key by DPoP (RFC 9449) or to a certificate by mutual TLS (RFC 8705).

A session stores what its tokens are bound to as one text: the thumbprint of the key, or that of the certificate behind a
prefix; empty for bearer tokens.
"""

import base64
import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from django.http import HttpRequest
from rest_framework.request import Request

from identity_platform.api.errors import AccessTokenInvalid
from userflow.oauth_errors import DpopProofInvalid
from userflow.sessions.client_certificates import presented_certificate
from userflow.sessions.dpop import check_proof

if TYPE_CHECKING:
    from userflow.sessions.client_authentication import KnownClient

# Members of the claim `cnf`.
_KEY, _CERTIFICATE = "jkt", "x5t#S256"
_PREFIX: Final = f"{_CERTIFICATE}:"


def thumbprint_of(certificate: x509.Certificate) -> str:
    """Return the SHA-256 thumbprint of a certificate in base64url (RFC 8705 section 3.1)."""
    return base64.urlsafe_b64encode(certificate.fingerprint(SHA256())).rstrip(b"=").decode()


def is_certificate(binding: str) -> bool:
    """Return whether tokens are bound to a certificate."""
    return binding.startswith(_PREFIX)


def confirmation_of(binding: str) -> dict[str, str]:
    """Return the claim `cnf` of tokens that are bound to this (RFC 9449 section 6.1, RFC 8705 section 3.1)."""
    return {_CERTIFICATE: binding.removeprefix(_PREFIX)} if is_certificate(binding) else {_KEY: binding}


def binding_of(confirmation: object) -> str:
    """Return what a token with this claim `cnf` is bound to; empty without the claim. Raises ValueError for another claim."""
    match confirmation:
        case None:
            return ""
        case {"jkt": str(key), **others} if not others:
            return key
        case {"x5t#S256": str(thumbprint), **others} if not others:
            return f"{_PREFIX}{thumbprint}"
    raise ValueError("cnf")


def token_type_of(binding: str) -> str:
    """Return the `token_type` of tokens that are bound to this: those of a certificate are bearer tokens otherwise."""
    return "DPoP" if binding and not is_certificate(binding) else "Bearer"


def presented_binding(request: HttpRequest | Request, client: "KnownClient") -> str:
    """Return what tokens are bound to that the client asks for with this request: its certificate, if it has registered for
    that, else the key of the DPoP proof; empty without either.

    Raises DpopProofInvalid (also for a proof of a client whose tokens are bound to its certificate: a token is bound to one of
    the two), DpopNonceRequired, Unavailable.
    """
    if not client.certificate_bound:
        return check_proof(request, profile=client.profile) or ""
    if "HTTP_DPOP" in request.META:
        raise DpopProofInvalid("Tokens of this client are bound to its certificate. Send no DPoP proof.")
    certificate = presented_certificate(request)
    return "" if certificate is None else f"{_PREFIX}{thumbprint_of(certificate)}"


def check_bound_token(request: HttpRequest | Request, token: str, claims: Mapping[str, object], *, scheme: str) -> None:
    """Require that a token is presented as it was issued.

    One that is bound to a key comes with the scheme DPoP and a proof by that key (RFC 9449 section 7), all others with Bearer;
    one that is bound to a certificate over mutual TLS with that certificate (RFC 8705 section 3). Raises AccessTokenInvalid,
    ValueError (an unknown claim `cnf`) and what `check_proof` raises.
    """
    binding = binding_of(claims.get("cnf"))
    if (token_type_of(binding) == "Bearer") != (scheme == "bearer"):
        raise AccessTokenInvalid
    if is_certificate(binding):
        certificate = presented_certificate(request)
        presented = "" if certificate is None else f"{_PREFIX}{thumbprint_of(certificate)}"
        if not hmac.compare_digest(presented, binding):
            raise AccessTokenInvalid
    elif binding:
        check_proof(request, access_token=token, required_jkt=binding)
