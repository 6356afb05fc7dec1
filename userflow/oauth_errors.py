"""Errors of the OAuth endpoints, with the codes of RFC 6749 section 5.2 and its extensions."""

from identity_platform.api import errors


class InvalidClient(errors.OAuthError):
    """401 `invalid_client` (RFC 6749 section 5.2): unknown or inactive client, or wrong secret, assertion or certificate."""

    status = 401
    code = "invalid_client"
    message = (
        "Client authentication failed: the client is unknown or inactive, or its secret, key or certificate is wrong."
    )

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message, headers={"WWW-Authenticate": 'Basic realm="clients", charset="UTF-8"'})


class InvalidRequest(errors.OAuthError):
    """400 `invalid_request` (RFC 6749 section 5.2)."""


class InvalidScope(errors.OAuthError):
    """400 `invalid_scope` (RFC 6749 section 5.2): more than the client or the user holds."""

    code = "invalid_scope"
    message = "The scope is malformed or exceeds what was granted to the client."


class InvalidTarget(errors.OAuthError):
    """400 `invalid_target` (RFC 8707 section 2): a resource that the client may not ask for."""

    code = "invalid_target"
    message = "The client may not ask for this resource. Its field `audiences` lists those that it may ask for."


class DpopProofInvalid(errors.OAuthError):
    """400 `invalid_dpop_proof` (RFC 9449 section 5); resources show it with 401 (section 7.1)."""

    code = "invalid_dpop_proof"
    message = "The DPoP proof is malformed, by another key, for another request, too old, or was used before."


class DpopNonceRequired(errors.OAuthError):
    """400 `use_dpop_nonce` (RFC 9449 section 8): the header DPoP-Nonce has the nonce for the next proof."""

    code = "use_dpop_nonce"
    message = "Send a DPoP proof with the nonce of the header DPoP-Nonce."

    def __init__(self, *, nonce: str) -> None:
        super().__init__(headers={"DPoP-Nonce": nonce})


class DpopRejected(errors.NotSignedIn):
    """401: a resource rejects the DPoP proof of an access token (RFC 9449 section 7.1)."""

    code = "invalid_dpop_proof"
    implied_by = "token"
    message = "The DPoP proof of this access token is not valid."

    def __init__(self, problem: errors.OAuthError) -> None:
        challenge = f'DPoP error="{problem.code}", algs="{errors.DPOP_ALGORITHMS}"'
        super().__init__(problem.text, headers={**problem.headers, "WWW-Authenticate": challenge})


class DpopRejectedWithoutNonce(DpopRejected):
    """401: the DPoP proof lacks the nonce of the header DPoP-Nonce (RFC 9449 section 9)."""

    code = "use_dpop_nonce"
    implied_by = "token"
    message = "Send a DPoP proof with the nonce of the header DPoP-Nonce."


class UnauthorizedClient(errors.OAuthError):
    """400 `unauthorized_client` (RFC 6749 section 5.2): the client is known but may not do this."""

    code = "unauthorized_client"
    message = "This client is not authorized for this request."


class InvalidGrant(errors.OAuthError):
    """400 `invalid_grant` (RFC 6749 section 5.2): the refresh token is unknown, used, expired or revoked."""

    code = "invalid_grant"
    message = "The refresh token is invalid or has expired. Sign in again."


class UnsupportedGrant(errors.OAuthError):
    """400 `unsupported_grant_type` (RFC 6749 section 5.2)."""

    code = "unsupported_grant_type"
    message = "grant_type must be client_credentials or refresh_token."
