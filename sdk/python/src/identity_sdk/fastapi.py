"""FastAPI: dependencies that verify the access token of a request."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPBearer

from identity_sdk.errors import AccessDenied
from identity_sdk.verification import Principal, Verifier

__all__ = ["IdentityAuth", "Principal"]
_bearer = HTTPBearer(auto_error=False, description="An access token of the identity platform")


class IdentityAuth:
    """Dependencies for the tokens of one issuer. The arguments are those of Verifier."""

    def __init__(self, issuer: str, **options: Any) -> None:
        self.verifier = Verifier(issuer, **options)

    def require_permission(self, *permissions: str) -> Callable[..., Principal]:
        """Return a dependency that gives the principal and requires these permissions; none: any valid token."""

        # No coroutine: fetching keys blocks, so FastAPI runs it in a thread.
        def principal(request: Request, documented: Annotated[object, Depends(_bearer)]) -> Principal:
            try:
                return self.verifier.authorize(request.headers.get("Authorization"), *permissions)
            except AccessDenied as error:
                raise HTTPException(error.status, error.body, error.headers) from error

        return principal
