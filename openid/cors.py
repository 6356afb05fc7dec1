"""Cross-origin requests to the OpenID endpoints that applications in a browser call.

Origins are those of the tenant's clients, read for each request, so a change needs no restart. Other paths are passed on
without a look-up; `identity_platform.api.middleware` covers those for the whole platform.
"""

import re
from collections.abc import Callable
from typing import Final

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

from identity_platform.api.errors import ApiError
from tenants.addresses.hosts import tenant_at_host
from tenants.entering import lookup
from tenants.entering.lookup import TenantContext
from tenants.entering.target import in_target
from userflow.accounts.models import TenantClient
from userflow.clients.registration import problem_of_origin

METHODS: Final = {"token": "POST", "par": "POST", "revoke": "POST", "userinfo": "GET, POST"}
_PATH = re.compile(rf"/t/(?P<slug>[^/]+)/(?P<endpoint>{'|'.join(METHODS)})")
_PATH_ON_DOMAIN = re.compile(rf"/(?P<endpoint>{'|'.join(METHODS)})")
# Metadata and keys are for all pages; a library that sends a header of its own asks first.
_DOCUMENT = re.compile(
    r"(/t/[^/]+)?/(jwks|\.well-known/openid-configuration)|/\.well-known/oauth-authorization-server(/t/[^/]+)?"
)
# Also those of tools, such as `traceparent`: no cookie comes along, and the origin is one of the client's.
_HEADERS: Final = "Authorization, Content-Type, DPoP, *"
_EXPOSED: Final = "DPoP-Nonce, Retry-After, WWW-Authenticate"
# Of a preflight, so that a removed origin is not served from a browser's cache for long.
_SECONDS: Final = "600"
_FOR_DOCUMENTS: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": _SECONDS,
}


class TenantCrossOrigin:
    """Let pages of the tenant's clients call its OpenID endpoints (Fetch Standard section 3.3); without cookies."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        preflight = request.method == "OPTIONS" and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in request.META
        if preflight and _DOCUMENT.fullmatch(request.path):
            return HttpResponse(status=204, headers=_FOR_DOCUMENTS)
        tenant = tenant_at_host(request)
        if tenant is not None:
            path_match = _PATH_ON_DOMAIN.fullmatch(request.path)
        else:
            path_match = _PATH.fullmatch(request.path) if request.path.startswith("/t/") else None
        if path_match is None:
            return self.get_response(request)
        origin = request.META.get("HTTP_ORIGIN", "")
        allowed = bool(origin) and _is_allowed(tenant, "" if tenant else path_match["slug"], origin)
        response = HttpResponse(status=204) if preflight else self.get_response(request)
        patch_vary_headers(response, ["Origin"])
        if allowed:
            response.headers["Access-Control-Allow-Origin"] = origin
            if preflight:
                response.headers["Access-Control-Allow-Methods"] = METHODS[path_match["endpoint"]]
                response.headers["Access-Control-Allow-Headers"] = _HEADERS
                response.headers["Access-Control-Max-Age"] = _SECONDS
            else:
                response.headers["Access-Control-Expose-Headers"] = _EXPOSED
        return response


def _is_allowed(tenant: TenantContext | None, slug: str, origin: str) -> bool:
    """Return whether an active client of the tenant has the origin. The slug is in any case, as in `find_by_slug`."""
    if problem_of_origin(origin) is not None:
        return False
    try:
        tenant = tenant or lookup.find_by_slug(slug)
        with in_target(tenant.target):
            return TenantClient.objects.filter(active=True, allowed_origins__contains=[origin]).exists()
    except (ApiError, OperationalError, InterfaceError):
        # The endpoint itself says why.
        return False
