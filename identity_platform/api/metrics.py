"""Prometheus metrics, summed over all processes of this host. METRICS_TOKEN protects them.

Each process keeps its values in files of PROMETHEUS_MULTIPROC_DIR. What is true of the whole platform (tenants, servers,
backlogs) is read from the global database at each scrape, by the collectors that apps add.
"""

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from identity_platform.api import errors, handlers
from identity_platform.crypto import constant_time_equal
from identity_platform.processes import is_alive

log = structlog.get_logger("identity.metrics")

REQUESTS = Counter("identity_requests", "Responses by route, method and status.", ["route", "method", "status"])
SECONDS = Histogram(
    "identity_request_seconds",
    "Response time by route.",
    ["route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)


# Callers can invent methods, and each one would stay in memory and on disk.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

PATH: Final = "/metrics"
# A proxy adds one of them to what it passes on.
FORWARDED: Final = ("X-Forwarded-For", "Forwarded")

Collect = Callable[[], Iterable[Metric]]
_collectors: dict[str, Collect] = {}
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def method_of(request: HttpRequest) -> str:
    """Return the request's method, or `other` for one that no path supports."""
    return request.method if request.method in METHODS else "other"


def count(route: str | None, method: str, status: int, seconds: float) -> None:
    """Count one response. By route, not by path: paths contain ids, so their number is unbounded."""
    responses, times = _of(route or "none", method, status)
    responses.inc()
    times.observe(seconds)


@cache  # of few values: `count` says why
def _of(route: str, method: str, status: int) -> tuple[Counter, Histogram]:
    return REQUESTS.labels(route, method, status), SECONDS.labels(route)


def add_collector(name: str, collect: Collect) -> None:
    """Let every scrape of `/metrics` include what `collect` returns. It may query the global database.

    A scrape is complete without it if it raises: `identity_collector_up` of this name is 0 then.
    """
    _collectors[name] = collect


def gauge(name: str, text: str, labels: Iterable[str], values: Iterable[tuple[Iterable[object], float]]) -> Metric:
    """Return a gauge with one sample for each of `values`: (values of the labels, value)."""
    family = GaugeMetricFamily(name, text, labels=list(labels))
    for label_values, value in values:
        family.add_metric([str(label) for label in label_values], value)
    return family


def exposition(request: HttpRequest) -> HttpResponse:
    """Return the metrics in Prometheus' text format.

    Requires `Authorization: Bearer <METRICS_TOKEN>`. Without the setting or the token the response is 404. So it is for a
    request that a proxy passed on: the platform's public address does not publish metrics, and would reach one instance only.
    """
    is_forwarded = any(name in request.headers for name in FORWARDED)
    if is_forwarded or not is_authorized(request.headers.get("Authorization", "")):
        return handlers.plain_response(request.path, errors.UnknownPath())
    return HttpResponse(text_of_host(platform_wide=True), content_type=CONTENT_TYPE_LATEST)


def is_authorized(authorization: str) -> bool:
    """Return whether the value of an Authorization header holds METRICS_TOKEN. Never without the setting."""
    token = settings.METRICS_TOKEN or ""
    return token != "" and constant_time_equal(authorization.removeprefix("Bearer "), token)


def text_of_host(*, platform_wide: bool) -> bytes:
    """Return the metrics of this host's processes; with `platform_wide` also those of the added collectors."""
    for process in _known() - processes():
        # Its counters stay in the sums, so that they never fall; what it used at the end does not.
        mark_process_dead(process)  # type: ignore[no-untyped-call]  # it has no types
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    registry.register(_Collectors({"host": _of_host} | (_collectors if platform_wide else {})))
    return generate_latest(registry)


class _Collectors(Collector):
    """All collectors of one scrape, and which of them succeeded."""

    def __init__(self, collectors: dict[str, Collect]) -> None:
        self._collectors = collectors

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        outcomes: list[tuple[list[str], float]] = []
        for name, collect in self._collectors.items():
            try:
                families = list(collect())
            except Exception as problem:
                log.warning("metrics_not_collected", collector=name, kind=type(problem).__qualname__)
                families = []
                outcomes.append(([name], 0.0))
            else:
                outcomes.append(([name], 1.0))
            yield from families
        yield gauge("identity_collector_up", "1 if the collector succeeded in this scrape.", ["collector"], outcomes)


def _of_host() -> Iterator[Metric]:
    yield gauge(
        "identity_build_info",
        "The release that serves this scrape. Always 1.",
        ["version", "python", "django"],
        [([settings.SPECTACULAR_SETTINGS["VERSION"], platform.python_version(), metadata.version("django")], 1.0)],
    )
    totals = [0.0] * 5
    for process in processes():
        try:
            for index, value in enumerate(_usage(process)):
                totals[index] += value
        except OSError:
            continue  # it has ended, or this is not Linux
    number, memory, threads, files, cpu = totals
    yield gauge("identity_processes", "Processes of the platform on this host.", [], [([], number)])
    yield gauge("identity_process_memory_bytes", "Their memory, shared pages counted once (PSS).", [], [([], memory)])
    yield gauge("identity_process_threads", "Their threads.", [], [([], threads)])
    yield gauge("identity_process_open_files", "Their open file descriptors.", [], [([], files)])
    spent = CounterMetricFamily("identity_process_cpu_seconds", "CPU time of the processes that run now.")
    spent.add_metric([], cpu)
    yield spent


def _usage(process: int) -> tuple[float, float, float, float, float]:
    """Return 1, memory in bytes, threads, open files and CPU seconds of a process. Raises OSError once it has ended."""
    folder = Path("/proc", str(process))
    memory = next(line for line in (folder / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    # The name in the second field may contain spaces (proc(5)).
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    ticks, threads = int(fields[11]) + int(fields[12]), int(fields[17])
    return 1.0, int(memory.split()[1]) * 1024.0, float(threads), float(len(os.listdir(folder / "fd"))), ticks / _TICKS


def processes() -> set[int]:
    """Return the ids of the living processes that keep metrics on this host."""
    return {process for process in _known() if is_alive(process)}


def delete_stale_files() -> None:
    """Delete the metric files of ended processes, which would otherwise be added to the sums."""
    for process in _known() - processes():
        for path in _folder().glob(f"*_{process}.db"):
            path.unlink(missing_ok=True)


def _known() -> set[int]:
    return {int(process) for path in _folder().glob("*.db") if (process := path.stem.rpartition("_")[2]).isdigit()}


def _folder() -> Path:
    return Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])


class Timed:
    """Observe the seconds that a `with` block took, by outcome: `ok`, or `failed` if it raised."""

    def __init__(self, histogram: Histogram, *labels: str) -> None:
        self._histogram, self._labels = histogram, labels

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        outcome = "ok" if kind is None else "failed"
        self._histogram.labels(*self._labels, outcome).observe(time.monotonic() - self._began)
