"""Members: who is signed in, with OpenID Connect at the tenant of the company."""

import time
from dataclasses import dataclass
from typing import Any, cast

from authlib.integrations.base_client import OAuthError
from authlib.integrations.starlette_client import OAuth, StarletteOAuth2App
from companies import ADMIN, Company
from starlette.requests import Request


@dataclass(frozen=True)
class Member:
    """A user who is signed in at a company."""

    company: Company
    sub: str
    name: str
    is_admin: bool


class SignInNeeded(Exception):
    """No user of the company is signed in."""

    def __init__(self, company: Company) -> None:
        super().__init__(company.slug)
        self.company = company


class Members:
    """Signs members in and out, and asks the platform again after `recheck` seconds whether they still may be."""

    def __init__(self, *, recheck: float) -> None:
        self._oauth = OAuth()
        self._recheck = recheck

    def provider(self, company: Company) -> StarletteOAuth2App:
        """Return the client of the company's tenant: each has its own issuer, keys, client id and secret."""
        # --- configuration
        return self._oauth.create_client(company.client_id) or self._oauth.register(
            company.client_id,
            client_id=company.client_id,
            client_secret=company.client_secret,
            server_metadata_url=f"{company.issuer}/.well-known/openid-configuration",
            client_kwargs={"scope": "openid profile email roles", "code_challenge_method": "S256"},
        )
        # --- end of configuration

    async def sign_in(self, request: Request, company: Company) -> None:
        """Finish a sign-in. Authlib checks state, nonce, PKCE and the ID token. Raises OAuthError."""
        # RFC 9207: with many providers, the response must name the one that was asked.
        if request.query_params.get("iss") != company.issuer:
            raise OAuthError("invalid_issuer", "The response is from another provider.")
        token = await self.provider(company).authorize_access_token(request)
        request.session.clear()
        self._remember(request, company, token, token["userinfo"])
        request.session["id_token"] = token["id_token"]

    async def member(self, request: Request, company: Company) -> Member:
        """Return who is signed in at the company. Raises SignInNeeded."""
        session = request.session
        if session.get("company") != company.slug:
            raise SignInNeeded(company)
        if time.time() > session["checked_at"] + self._recheck:
            await self._check(request, company)
        return Member(company, session["sub"], session["name"], ADMIN in session["roles"])

    async def _check(self, request: Request, company: Company) -> None:
        """Refresh the tokens: it fails if the session has ended at the platform, and shows changed roles."""
        provider, session = self.provider(company), request.session
        try:
            token = await provider.fetch_access_token(
                grant_type="refresh_token", refresh_token=session["refresh_token"]
            )
            claims = await provider.userinfo(token=token)
        except OAuthError:
            session.clear()
            raise SignInNeeded(company) from None
        self._remember(request, company, token, claims)

    def _remember(self, request: Request, company: Company, token: dict[str, Any], claims: dict[str, Any]) -> None:
        # `sub` never changes, names and addresses do.
        request.session.update(
            company=company.slug,
            sub=claims["sub"],
            name=claims.get("name") or claims["email"],
            roles=claims.get("roles", []),
            refresh_token=token["refresh_token"],
            checked_at=time.time(),
        )

    async def sign_out(self, request: Request, company: Company, back: str) -> str:
        """End the session here; return the address that ends it at the platform too."""
        hint = request.session.get("id_token")
        request.session.clear()
        found = await self.provider(company).create_logout_url(
            post_logout_redirect_uri=back, id_token_hint=hint, client_id=company.client_id
        )
        return cast(str, found["url"])
