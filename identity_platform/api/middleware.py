"""Middleware for every request: request id, security headers, body size, HTTPS, one log line."""

import re
import time
import uuid
from collections.abc import Awaitable, Callable

import structlog
from corsheaders.middleware import CorsMiddleware
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware import security

from identity_platform.api import errors, handlers, logs, metrics
from identity_platform.api.app_parts import api_part
from identity_platform.api.client_address import client_address, is_callers_own
from identity_platform.audit.origin import Origin, current_origin, set_origin
from identity_platform.postgresql import statement_timeout

# A request id that the caller sends is used if it cannot break a log line or a header.
SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:=+/-]{1,128}")
# Longer than the server's own limit, so that the server itself cancels a statement that is only slow.
STATEMENT_TIMEOUT_SECONDS = settings.TENANT_STATEMENT_TIMEOUT_MS / 1000 + 0.2
# Pages of staff read more.
STAFF_STATEMENT_TIMEOUT_SECONDS = STATEMENT_TIMEOUT_SECONDS + 10
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'none'; form-action 'self'; base-uri 'self'"
)


class ApiMiddleware:
    """Give every response a request id, a content security policy and a log line. The outermost middleware."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._staff_pages = tuple(api_part().staff_pages)
        self._pages = (*api_part().pages, *self._staff_pages)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        sent_id = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = sent_id if SANE_REQUEST_ID.fullmatch(sent_id) else uuid.uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]  # read by the audit trail and the views
        structlog.contextvars.bind_contextvars(request_id=request_id)
        set_origin(
            Origin(
                actor_kind="anonymous",
                address=client_address(request.META, settings.TRUSTED_PROXY_HOPS),
                request_id=request_id,
                address_is_own=is_callers_own(request.META, settings.TRUSTED_PROXY_HOPS),
                accept_language=request.META.get("HTTP_ACCEPT_LANGUAGE", ""),
            )
        )
        statement_timeout.limit(
            STAFF_STATEMENT_TIMEOUT_SECONDS if request.path.startswith(self._staff_pages) else STATEMENT_TIMEOUT_SECONDS
        )
        try:
            response = self.get_response(request)
            response.headers["X-Request-ID"] = request_id
            # A page may have set a stricter policy.
            policy = PAGE_POLICY if request.path.startswith(self._pages) else API_POLICY
            response.headers.setdefault("Content-Security-Policy", policy)
            match = request.resolver_match
            route = match.route if match else None
            seconds = time.perf_counter() - began
            method = metrics.method_of(request)
            metrics.count(route, method, response.status_code, seconds)
            origin = current_origin()
            logs.log_request(
                {
                    "method": method,
                    # The route, not the path: paths and queries contain ids and addresses of people.
                    "route": route,
                    "status": response.status_code,
                    "ms": round(seconds * 1000, 2),
                    "tenant": origin.tenant_id,
                    "kind": origin.actor_kind,
                    "client": origin.client_id,
                    "address": origin.address,
                }
            )
            return response
        finally:
            statement_timeout.limit(None)
            structlog.contextvars.clear_contextvars()


class CrossOrigin(CorsMiddleware):
    """Skip django-cors-headers without a list: no response depends on the origin then."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if not settings.CORS_ALLOWED_ORIGINS:
            return self.get_response(request)
        return super().__call__(request)


class SecurityMiddleware(security.SecurityMiddleware):
    """Django's own, which also rejects unknown hosts and large bodies, and redirects to HTTPS with 308.

    Django redirects with 301, after which clients send a POST as a GET. 308 keeps method and body (RFC 9110 section 15.4.9).
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        super().__init__(get_response)
        self._next = get_response
        self._staff_pages = tuple(api_part().staff_pages)
        self._probes = api_part().probes

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._rejection(request) or self._next(request)
        if not getattr(request, "is_platform_host", True) and self.sts_seconds and request.is_secure():
            # What a tenant has on other subdomains is not the platform's to decide. An unknown host may be about to become one.
            response.headers.setdefault("Strict-Transport-Security", f"max-age={self.sts_seconds}")
        if request.path.startswith(self._staff_pages):
            # With no-referrer browsers send forms with `Origin: null`, which the CSRF check rejects.
            response.headers.setdefault("Referrer-Policy", "same-origin")
        return self.process_response(request, response)

    def _rejection(self, request: HttpRequest) -> HttpResponse | None:
        length = request.META.get("CONTENT_LENGTH") or "0"
        if length.isdigit() and int(length) > settings.API_BODY_LIMIT:
            too_large = handlers.plain_response(request.path, errors.BodyTooLarge())
            # A page of an allowed origin may read why its request was rejected.
            response = CrossOrigin(lambda _: too_large)(request)
            assert isinstance(response, HttpResponse)  # no view is async
            return response
        if request.path in self._probes:
            return None
        try:
            # Of a tenant's own domain, which an inner middleware knows.
            host = getattr(request, "sign_in_domain", None) or request.get_host()
        except DisallowedHost:
            return handlers.plain_response(request.path, errors.UnknownHost())
        if settings.SECURE_SSL_REDIRECT and not request.is_secure():
            return HttpResponse(status=308, headers={"Location": f"https://{host}{request.get_full_path()}"})
        return None
