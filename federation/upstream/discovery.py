"""Discovery documents of OpenID providers (OpenID Connect Discovery 1.0): fetched, validated and cached."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from federation.upstream import calls
from federation.upstream.cached_documents import DocumentCache
from federation.upstream.clients import Rules, UpstreamClient
from federation.upstream.errors import Reason, UpstreamError

WELL_KNOWN: Final = "/.well-known/openid-configuration"
GITHUB: Final = "https://github.com"
_GITHUB_API: Final = "https://api.github.com"
# What a provider supports that does not say so (OpenID Connect Discovery section 3).
_DEFAULT_METHODS: Final = ("client_secret_basic",)


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """Where a provider is called, and what it supports. Each address is checked again whenever it is called."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    # Empty only for providers without OpenID Connect.
    jwks_uri: str
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods: tuple[str, ...] = _DEFAULT_METHODS
    # Whether callbacks always name the issuer (RFC 9207 section 3).
    names_issuer_in_callback: bool = False


_cache: DocumentCache[ProviderMetadata] = DocumentCache()


def metadata_of(client: UpstreamClient) -> ProviderMetadata:
    """Return the metadata of a client's provider, at most an hour old. Raises UpstreamError."""
    if client.rules == Rules.GITHUB:
        return github_metadata(client.issuer)
    return _cache.get(
        client.connection_id,
        f"{client.discovery_issuer} {client.issuer}",
        lambda: fetch_metadata(client.issuer, discovery_base=client.discovery_base, authorities=client.authorities),
    )


def fetch_metadata(issuer: str, *, discovery_base: str = "", authorities: str = "") -> ProviderMetadata:
    """Return the metadata of the provider with this issuer, fetched now.

    `discovery_base` is the issuer below which the document is, if that is another one: Microsoft's document for all tenants
    has an issuer with `{tenantid}`. Raises UpstreamError.
    """
    base = discovery_base or issuer
    return read_metadata(calls.get_json(base.rstrip("/") + WELL_KNOWN, authorities=authorities), issuer)


def read_metadata(document: object, issuer: str) -> ProviderMetadata:
    """Return the metadata in a discovery document, whose issuer must be exactly this one (Discovery section 4.3).

    Raises UpstreamError.
    """
    if not isinstance(document, dict):
        raise UpstreamError(Reason.METADATA_INVALID, expected="a JSON object")
    received = document.get("issuer")
    if received != issuer:
        value = received if isinstance(received, str) else type(received).__name__
        raise UpstreamError(Reason.METADATA_ISSUER_MISMATCH, expected=issuer, received=value)
    methods = document.get("token_endpoint_auth_methods_supported")
    return ProviderMetadata(
        issuer=issuer,
        authorization_endpoint=_endpoint(document, "authorization_endpoint"),
        token_endpoint=_endpoint(document, "token_endpoint"),
        jwks_uri=_endpoint(document, "jwks_uri"),
        userinfo_endpoint=_endpoint(document, "userinfo_endpoint") if "userinfo_endpoint" in document else "",
        token_endpoint_auth_methods=(
            tuple(method for method in methods if isinstance(method, str))
            if isinstance(methods, list)
            else _DEFAULT_METHODS
        ),
        names_issuer_in_callback=document.get("authorization_response_iss_parameter_supported") is True,
    )


def github_metadata(base: str = GITHUB) -> ProviderMetadata:
    """Return where GitHub is called, which publishes no metadata. `base` is the address of a GitHub Enterprise Server.

    (GitHub documentation, "Authorizing OAuth apps"; "Getting started with the REST API" of the Enterprise Server.)
    """
    base = base.rstrip("/")
    api = _GITHUB_API if base == GITHUB else f"{base}/api/v3"
    return ProviderMetadata(
        issuer=base,
        authorization_endpoint=f"{base}/login/oauth/authorize",
        token_endpoint=f"{base}/login/oauth/access_token",
        jwks_uri="",
        userinfo_endpoint=f"{api}/user",
        token_endpoint_auth_methods=("client_secret_post",),
    )


def _endpoint(document: Mapping[str, object], name: str) -> str:
    address = document.get(name)
    if not isinstance(address, str) or not calls.is_address(address):
        received = address if isinstance(address, str) else type(address).__name__
        raise UpstreamError(Reason.METADATA_INVALID, expected=f"{name}, an https address", received=received)
    return address
