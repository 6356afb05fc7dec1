"""What every request passes first and last: request id, size guard, safety headers, one line in the log."""

import re
import time
import uuid
from collections.abc import Callable

import structlog
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse

from identity_platform.api import errors, handlers, metrics
from identity_platform.api.client_address import client_address, is_callers_own
from identity_platform.api.cors import CrossOrigin
from identity_platform.audit.origin import Origin, current_origin, set_origin
from identity_platform.postgresql import statement_timeout

access = structlog.get_logger("identity.access")

# A caller's own id is taken over when it cannot break a log line or a header.
SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:=+/-]{1,128}")
# Orchestrators probe by address: these answer to any Host, and say nothing that depends on it.
PROBES = frozenset({"/uflow/health", "/uflow/ready", "/uflow/live"})
CONSOLE = "/admin/"
# Longer than the server's own limit, so that it is the server that ends what is only slow.
STATEMENT_TIMEOUT_SECONDS = settings.TENANT_STATEMENT_TIMEOUT_MS / 1000 + 0.2
# Its pages look at more, and somebody is looking at them.
CONSOLE_STATEMENT_TIMEOUT_SECONDS = STATEMENT_TIMEOUT_SECONDS + 10
PAGES = (CONSOLE, "/docs/", "/demo/", "/static/")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
# As Django keeps headers that it has checked: checking the same ones again would cost every answer 15 microseconds.
_CHECKED = {name.lower(): (name, value) for name, value in HEADERS.items()}
PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'none'; form-action 'self'; base-uri 'self'"
)


class ApiMiddleware:
    """Outermost: what happens inside cannot leave without an envelope, an id and a log line."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        stated = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = stated if SANE_REQUEST_ID.fullmatch(stated) else uuid.uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]  # read by the audit trail and the views
        structlog.contextvars.bind_contextvars(request_id=request_id)
        set_origin(
            Origin(
                actor_kind="anonymous",
                address=client_address(request.META, settings.TRUSTED_PROXY_HOPS),
                request_id=request_id,
                address_is_own=is_callers_own(request.META, settings.TRUSTED_PROXY_HOPS),
            )
        )
        statement_timeout.limit(
            CONSOLE_STATEMENT_TIMEOUT_SECONDS if request.path.startswith(CONSOLE) else STATEMENT_TIMEOUT_SECONDS
        )
        try:
            response = self._answer(request)
            response.headers["X-Request-ID"] = request_id
            if request.path.startswith(PAGES):
                # A page may state a stricter one of its own.
                response.headers.setdefault("Content-Security-Policy", PAGE_POLICY)
            if request.path.startswith(CONSOLE):
                # With no-referrer browsers send forms with `Origin: null`, which the check for forged requests rejects.
                response.headers.setdefault("Referrer-Policy", "same-origin")
            stored = response.headers._store
            for key, header in _CHECKED.items():
                stored.setdefault(key, header)
            if settings.SECURE_HSTS_SECONDS:
                response.headers["Strict-Transport-Security"] = (
                    f"max-age={settings.SECURE_HSTS_SECONDS}; includeSubDomains; preload"
                )
            match = request.resolver_match
            route = match.route if match else None
            seconds = time.perf_counter() - began
            method = metrics.method_of(request)
            metrics.count(route, method, response.status_code, seconds)
            origin = current_origin()
            access.info(
                "request",
                method=method,
                # The route, not the path: paths and queries carry ids and addresses of people.
                route=route,
                status=response.status_code,
                ms=round(seconds * 1000, 2),
                tenant=origin.tenant_id,
                kind=origin.actor_kind,
                client=origin.client_id,
                address=origin.address,
            )
            return response
        finally:
            statement_timeout.limit(None)
            structlog.contextvars.clear_contextvars()

    def _answer(self, request: HttpRequest) -> HttpResponse:
        length = request.META.get("CONTENT_LENGTH") or "0"
        if length.isdigit() and int(length) > settings.API_BODY_LIMIT:
            refused = handlers.plain_response(request.path, errors.BodyTooLarge())
            # A page of another origin that may call us may also read why it was rejected.
            answer: HttpResponse = CrossOrigin(lambda _: refused)(request)
            return answer
        if request.path not in PROBES:
            try:
                host = request.get_host()
            except DisallowedHost:
                return handlers.plain_response(request.path, errors.UnknownHost())
            if settings.SECURE_SSL_REDIRECT and not request.is_secure():
                # 308 keeps method and body (RFC 9110 section 15.4.9).
                return HttpResponse(status=308, headers={"Location": f"https://{host}{request.get_full_path()}"})
        return self.get_response(request)
