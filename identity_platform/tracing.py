"""Traces for an OpenTelemetry collector (OTLP over HTTP). Off unless OTEL_EXPORTER_OTLP_ENDPOINT is set.

Spans hold routes, statements with placeholders, names of servers and ids of tenants. They hold no paths, queries, parameters,
addresses or ids of people, and no texts of errors, which may quote them. Only this module imports OpenTelemetry, and only when
traces are on, as it is not installed everywhere (requirements/tracing.txt).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import structlog
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest, HttpResponse

from identity_platform.api import metrics
from identity_platform.audit.origin import current_origin
from identity_platform.installation import how_to_install

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

LONGEST_STATEMENT: Final = 2000

_provider: TracerProvider | None = None
_tracer: Tracer | None = None


def set_up() -> None:
    """Send the spans of this process, and of those that it forks, to the collector; do nothing if traces are off.

    The SDK reads the other OTEL_ variables (sampler, headers, batches). Raises ImproperlyConfigured when
    requirements/tracing.txt is not installed.
    """
    global _provider, _tracer
    if _provider is not None or not settings.TRACES_ENDPOINT:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise ImproperlyConfigured(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is set and OpenTelemetry is not installed: {how_to_install('tracing')}, "
            "or unset the variable."
        ) from missing
    _provider = TracerProvider(resource=Resource.create({SERVICE_NAME: settings.TRACES_SERVICE}))
    exporter = OTLPSpanExporter(endpoint=f"{settings.TRACES_ENDPOINT}/v1/traces")
    _provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = _provider.get_tracer("identity_platform")


def span(name: str, **attributes: str) -> AbstractContextManager[object]:
    """Run an operation in a span, inside the current one. Without one, and when traces are off, there is none."""
    if _tracer is None:
        return nullcontext()
    from opentelemetry.trace import get_current_span

    return _span(_tracer, name, attributes=attributes) if get_current_span().is_recording() else nullcontext()


@contextmanager
def root_span(name: str, **attributes: str) -> Iterator[None]:
    """Run background work in a span of its own, in which statements are spans too."""
    if _tracer is None:
        yield
        return
    with _span(_tracer, name, attributes=attributes), _statements():
        yield


class Traced:
    """Give each request a span, and each of its statements. The outermost middleware when traces are on.

    The span continues the trace of the header `traceparent` (W3C Trace Context), and the request's log lines name the trace.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        set_up()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        from opentelemetry.trace import SpanKind, format_trace_id
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        assert _tracer is not None  # this middleware is loaded when traces are on
        caller = TraceContextTextMapPropagator().extract(
            {name: request.headers[name] for name in ("traceparent", "tracestate") if name in request.headers}
        )
        method = metrics.method_of(request)
        with _span(_tracer, method, context=caller, kind=SpanKind.SERVER) as open_span, _statements():
            trace = format_trace_id(open_span.get_span_context().trace_id)
            structlog.contextvars.bind_contextvars(trace=trace)
            response = self.get_response(request)
            _describe(open_span, method, request, response)
            return response


def _describe(open_span: Span, method: str, request: HttpRequest, response: HttpResponse) -> None:
    # The names of OpenTelemetry's semantic conventions for HTTP servers.
    open_span.set_attribute("http.request.method", method)
    open_span.set_attribute("http.response.status_code", response.status_code)
    if match := request.resolver_match:
        open_span.set_attribute("http.route", match.route)
        open_span.update_name(f"{method} {match.route}")
    open_span.set_attribute("identity.request_id", response.headers.get("X-Request-ID", ""))
    if tenant_id := current_origin().tenant_id:
        open_span.set_attribute("identity.tenant", str(tenant_id))
    if response.status_code >= 500:
        _mark_failed(open_span, str(response.status_code))


@contextmanager
def _span(tracer: Tracer, name: str, **options: Any) -> Iterator[Span]:
    """Run what is inside in a span. Of an error it keeps the class and not the text."""
    with tracer.start_as_current_span(
        name, record_exception=False, set_status_on_exception=False, **options
    ) as open_span:
        try:
            yield open_span
        except Exception as problem:
            _mark_failed(open_span, type(problem).__qualname__)
            raise


def _mark_failed(open_span: Span, kind: str) -> None:
    from opentelemetry.trace import StatusCode

    open_span.set_status(StatusCode.ERROR)
    open_span.set_attribute("error.type", kind)


@contextmanager
def _statements() -> Iterator[None]:
    with ExitStack() as wrappers:
        for alias in connections:
            wrappers.enter_context(connections[alias].execute_wrapper(_run_statement))
        yield


def _run_statement(
    execute: Callable[..., Any], statement: object, parameters: object, many: bool, context: dict[str, Any]
) -> Any:
    from opentelemetry.trace import SpanKind

    assert _tracer is not None  # the wrapper is installed inside a span
    server, tenant_id = context["connection"].server_and_tenant()
    attributes = {"db.system.name": "postgresql", "identity.server": server or ""}
    if tenant_id is not None:
        attributes["identity.tenant"] = str(tenant_id)
    name = "statement"
    # One that is composed may have values in it.
    if isinstance(statement, str):
        attributes["db.query.text"] = statement[:LONGEST_STATEMENT]
        name = statement.split(maxsplit=1)[0].upper() if statement.strip() else name
    with _span(_tracer, name, kind=SpanKind.CLIENT, attributes=attributes):
        return execute(statement, parameters, many, context)
