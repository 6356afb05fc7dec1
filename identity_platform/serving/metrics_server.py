"""`/metrics` of a process that serves no requests (`tenant_worker`, `deliver_events`), on a port of its own."""

import threading
from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import suppress
from typing import Final
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from django.core.management.base import CommandError
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.exposition import ThreadingWSGIServer

from identity_platform.api import metrics

SILENT_SECONDS: Final = 5


def add_argument(parser: ArgumentParser) -> None:
    """Add `--metrics HOST:PORT` to a command."""
    parser.add_argument(
        "--metrics",
        default="",
        metavar="HOST:PORT",
        help="Serve the metrics of this host's processes at http://HOST:PORT/metrics, for the bearer METRICS_TOKEN.",
    )


def start(address: str) -> None:
    """Serve the metrics in a thread of their own until the process ends. Nothing is served if `address` is empty.

    Unlike the platform's own `/metrics` it queries no database, so it tells about a worker whose database is away.
    Raises CommandError if the address is invalid or taken.
    """
    if not address:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise CommandError(f"--metrics {address}: state an address and a port, as in 0.0.0.0:9464.")
    try:
        server = make_server(host.strip("[]"), int(port), _respond, ThreadingWSGIServer, _Silent)
    except (OSError, OverflowError) as problem:
        raise CommandError(f"--metrics {address}: cannot listen there: {problem}. State a free address.") from problem
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


class _Silent(WSGIRequestHandler):
    # Of a connection that sends nothing, which would otherwise hold a thread for good.
    timeout = SILENT_SECONDS

    def handle(self) -> None:
        """Respond; close a connection that sends nothing or is reset, which would otherwise print a traceback."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""


def _respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    authorized = metrics.is_authorized(environ.get("HTTP_AUTHORIZATION", ""))
    if environ.get("PATH_INFO") != metrics.PATH or not authorized:
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"Not found. Metrics are at /metrics, for the bearer METRICS_TOKEN.\n"]
    start_response("200 OK", [("Content-Type", CONTENT_TYPE_LATEST)])
    return [metrics.text_of_host(platform_wide=False)]
