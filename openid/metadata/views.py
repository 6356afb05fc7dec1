"""The public keys of a tenant (RFC 7517) and the metadata of its issuer (RFC 8414)."""

from collections.abc import Callable
from contextlib import suppress

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.http.response import HttpResponseBase
from django.utils.http import parse_etags
from rest_framework import serializers
from rest_framework.request import Request

from identity_platform.api.errors import Unavailable
from identity_platform.api.json_documents import JsonDocument
from identity_platform.api.views import endpoint
from openid.metadata.documents import provider_metadata
from openid.tenant_of_request import tenant_of_keys, tenant_of_request
from tenants.errors import TenantBusy, UnknownTenant
from tenants.states import Purpose
from userflow.sessions import signing
from userflow.sessions.serializers import JwksOut
from userflow.sessions.view_sets import PublicViewSet

# Verifiers that run in browsers read these documents too.
EVERY_ORIGIN = {"Access-Control-Allow-Origin": "*"}
PUBLIC = {"Cache-Control": "public, max-age=300", **EVERY_ORIGIN}


def _list() -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField())


class ProviderMetadataOut(serializers.Serializer[object]):
    """OpenID Connect Discovery section 3, RFC 8414 section 2, RFC 8705, RFC 9101, RFC 9126, RFC 9207 section 3, JARM."""

    issuer = serializers.CharField()
    authorization_endpoint = serializers.CharField()
    token_endpoint = serializers.CharField()
    pushed_authorization_request_endpoint = serializers.CharField()
    device_authorization_endpoint = serializers.CharField()
    userinfo_endpoint = serializers.CharField()
    end_session_endpoint = serializers.CharField()
    backchannel_logout_supported = serializers.BooleanField()
    backchannel_logout_session_supported = serializers.BooleanField()
    revocation_endpoint = serializers.CharField()
    introspection_endpoint = serializers.CharField()
    jwks_uri = serializers.CharField()
    service_documentation = serializers.CharField()
    response_types_supported = _list()
    response_modes_supported = _list()
    grant_types_supported = _list()
    subject_types_supported = _list()
    id_token_signing_alg_values_supported = _list()
    scopes_supported = _list()
    claims_supported = _list()
    acr_values_supported = _list()
    prompt_values_supported = _list()
    ui_locales_supported = _list()
    code_challenge_methods_supported = _list()
    token_endpoint_auth_methods_supported = _list()
    token_endpoint_auth_signing_alg_values_supported = _list()
    dpop_signing_alg_values_supported = _list()
    revocation_endpoint_auth_methods_supported = _list()
    revocation_endpoint_auth_signing_alg_values_supported = _list()
    introspection_endpoint_auth_methods_supported = _list()
    introspection_endpoint_auth_signing_alg_values_supported = _list()
    authorization_response_iss_parameter_supported = serializers.BooleanField()
    claims_parameter_supported = serializers.BooleanField()
    authorization_signing_alg_values_supported = _list()
    request_parameter_supported = serializers.BooleanField()
    request_object_signing_alg_values_supported = _list()
    request_uri_parameter_supported = serializers.BooleanField()
    require_pushed_authorization_requests = serializers.BooleanField()
    tls_client_certificate_bound_access_tokens = serializers.BooleanField(
        required=False, help_text="Whether access tokens can be bound to certificates (RFC 8705)."
    )
    mtls_endpoint_aliases = serializers.DictField(
        child=serializers.CharField(), required=False, help_text="Endpoints for clients with certificates, by name."
    )


class IssuerViewSet(PublicViewSet):
    """What verifiers and client libraries look up about a tenant's issuer. The documents are rendered already.

    Each request reads the tenant, so that no document is older than its settings, its state and its address. Keys are those of
    `signing.key_set`.
    """

    _problem: Exception | None = None

    @property
    def default_response_headers(self) -> dict[str, str]:
        """Return the header with which pages of every origin can read errors too."""
        return EVERY_ORIGIN

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        """Respond without DRF: it costs as much as the rest. It handles errors and other methods."""
        if request.method in ("GET", "HEAD"):
            action: Callable[..., HttpResponse] = getattr(self, self.action_map["get"])
            try:
                return action(request, *args, **kwargs)
            except Exception as problem:
                self._problem = problem
        return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        """Raise 405, else the error of the document."""
        super().initial(request, *args, **kwargs)
        if self._problem is not None:
            raise self._problem

    @endpoint(id="getTenantJwks", returns={200: JwksOut}, errors=[UnknownTenant, TenantBusy], token="none")
    def jwks(self, request: HttpRequest, slug: str) -> HttpResponse:
        """Get the keys of a tenant's tokens.

        Return the current and still valid keys (RFC 7517), which can be cached. Also at the address of a former slug, for
        tokens that have not expired.
        """
        tenant = tenant_of_keys(request)
        # The first look-up creates the keys, so that a verifier never caches a set without the one that it will need.
        read = signing.complete_key_set if tenant.allows(Purpose.WRITE) else signing.key_set
        return _response(request, read(tenant.tenant_id).document)

    @endpoint(id="getOpenidConfiguration", returns={200: ProviderMetadataOut}, errors=[UnknownTenant], token="none")
    def metadata(self, request: HttpRequest, slug: str) -> HttpResponse:
        """Get the OpenID configuration of a tenant.

        Endpoints and supported parameters of the tenant's issuer (OpenID Connect Discovery).
        """
        return self._metadata(request)

    @endpoint(id="getTenantServerMetadata", returns={200: ProviderMetadataOut}, errors=[UnknownTenant], token="none")
    def server_metadata(self, request: HttpRequest, slug: str) -> HttpResponse:
        """Get the metadata of a tenant's issuer by the path of RFC 8414.

        The same as the OpenID configuration, at the path that OAuth client libraries look up.
        """
        return self._metadata(request)

    def _metadata(self, request: HttpRequest) -> HttpResponse:
        tenant = tenant_of_request(request)
        if tenant.allows(Purpose.WRITE) and not signing.is_known_complete(tenant.tenant_id):
            # The document names algorithms: their keys exist from now on. If the database cannot be reached, the first response
            # of /jwks creates them.
            with suppress(Unavailable, OperationalError, InterfaceError):
                signing.complete_key_set(tenant.tenant_id)
        return _response(request, provider_metadata(tenant))


def _response(request: HttpRequest, document: JsonDocument) -> HttpResponse:
    """Return the document, or 304 if the caller has it (RFC 9110 section 13.1.2). Pages of every origin can read both."""
    known_tags = [tag.removeprefix("W/") for tag in parse_etags(request.META.get("HTTP_IF_NONE_MATCH", ""))]
    is_known = document.etag in known_tags or "*" in known_tags
    response = (
        HttpResponseNotModified() if is_known else HttpResponse(document.content, content_type="application/json")
    )
    for name, value in {**PUBLIC, "ETag": document.etag}.items():
        response.headers[name] = value
    return response
