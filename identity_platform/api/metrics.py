"""Figures for Prometheus, summed over all workers of this host; behind a token of their own."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from identity_platform.api import errors, handlers
from identity_platform.crypto import same

REQUESTS = Counter("identity_requests", "Answers by route, method and status.", ["route", "method", "status"])
SECONDS = Histogram(
    "identity_request_seconds",
    "Time of an answer by route.",
    ["route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)


# Anybody can make methods up, and each of them would stay in memory and on disk for ever.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def method_of(request: HttpRequest) -> str:
    """The request's method, or `other` for one that no path here takes."""
    return request.method if request.method in METHODS else "other"


def count(route: str | None, method: str, status: int, seconds: float) -> None:
    """One answer. The route, not the path: paths carry ids, and there are endlessly many."""
    named = route or "none"
    REQUESTS.labels(named, method, status).inc()
    SECONDS.labels(named).observe(seconds)


def exposition(request: HttpRequest) -> HttpResponse:
    """The figures in Prometheus' text format.

    For `Authorization: Bearer <METRICS_TOKEN>`; without that setting, or without the token, there is no such path.
    """
    stated = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not settings.METRICS_TOKEN or not same(stated, settings.METRICS_TOKEN):
        return handlers.plain_response(request.path, errors.UnknownPath())
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
