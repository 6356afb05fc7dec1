"""Prometheus metrics, summed over all worker processes of this host. METRICS_TOKEN protects them."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from identity_platform.api import errors, handlers
from identity_platform.crypto import same

REQUESTS = Counter("identity_requests", "Responses by route, method and status.", ["route", "method", "status"])
SECONDS = Histogram(
    "identity_request_seconds",
    "Response time by route.",
    ["route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)


# Callers can invent methods, and each one would stay in memory and on disk.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def method_of(request: HttpRequest) -> str:
    """Return the request's method, or `other` for one that no path supports."""
    return request.method if request.method in METHODS else "other"


def count(route: str | None, method: str, status: int, seconds: float) -> None:
    """Count one response. By route, not by path: paths contain ids, so their number is unbounded."""
    named = route or "none"
    REQUESTS.labels(named, method, status).inc()
    SECONDS.labels(named).observe(seconds)


def exposition(request: HttpRequest) -> HttpResponse:
    """Return the metrics in Prometheus' text format.

    Requires `Authorization: Bearer <METRICS_TOKEN>`. Without the setting or the token the response is 404.
    """
    stated = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not settings.METRICS_TOKEN or not same(stated, settings.METRICS_TOKEN):
        return handlers.plain_response(request.path, errors.UnknownPath())
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
