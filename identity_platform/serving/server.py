"""Starts the platform: `python -m identity_platform.serving.server`, as bin/serve, `identity serve` and the container do.

Makes the databases ready, then serves WSGI with granian: one process that listens and watches, `WEB_WORKERS` processes
that answer. SIGTERM and Ctrl-C let requests in flight finish (10 s) and end with status 0.
"""

import gc
import importlib
import io
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn
from wsgiref.types import WSGIApplication

from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.net import SocketHolder  # type: ignore[attr-defined]  # it is there, without __all__
from granian.server.mp import MPServer

from identity_platform.environment import state_folder, text
from identity_platform.installation import SERVE
from identity_platform.serving.workers import (
    FENCED,
    FINISH_SECONDS,
    SAMPLE_COMMAND,
    STOPPING,
    WORKER_COMMANDS,
    WorkerProcesses,
    exit_with_parent,
)
from identity_platform.signals import worker_starting

PLATFORM = "identity_platform.wsgi"
# Connections, idle ones included, that a worker holds open; more wait in the kernel's queue.
CONNECTIONS_PER_WORKER = 512
QUEUE = 1024
# For how long connections are closed one by one before a stop.
CLOSING_SECONDS = 0.5
# How long the workers have to stop accepting connections before new ones are rejected.
STOP_ACCEPTING_SECONDS = 0.3


def main() -> None:
    """Serve until a signal ends it. Exits with 1 and one line on standard error when it cannot start."""
    # What a start loads stays: garbage is collected from `load_before_forking` on.
    gc.disable()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "identity_platform.settings")
    # Until granian takes the signals over: an orderly end, so that embedded servers are stopped.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)

    import django
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import BaseCommand, CommandError, call_command, get_commands
    from django.db import OperationalError

    from identity_platform.serving import embedded

    try:
        if is_first_start():
            print(
                "Making the databases, an operator and a demo tenant (once, about 15 s) ...",
                file=sys.stderr,
                flush=True,
            )
        django.setup()
        # It reads the settings.
        from identity_platform import shared_facts
        from identity_platform.api import metrics
        from identity_platform.installation import VERSION
        from identity_platform.serving import last_start

        metrics.delete_stale_files()
        with bound(settings.HOST, settings.PORT) as listener:
            if settings.EMBEDDED:
                last_start.remember()
            try:
                BaseCommand().check(databases=["default"])
                _prepare(lambda: call_command("prepare"))
            except OperationalError as problem:
                # This release has served this installation within a day: an outage must not end with a restart.
                if shared_facts.read(shared_facts.INSTALLATION, lambda served: str(served[2])) != VERSION:
                    raise
                print(f"{SERVE}: serving without the global database: {problem}", file=sys.stderr, flush=True)
            importlib.import_module(PLATFORM)
            from identity_platform.crypto import argon2id

            argon2id.fastest()  # once for all workers
            # In production they are services of their own; here everything works after one command.
            sample = sample_application(settings.DEMO_PORT) if embedded.attached() else ""
            load_before_forking()
            command_names = (*WORKER_COMMANDS, *([SAMPLE_COMMAND] if sample else []))
            commands = [name for name in command_names if name in get_commands()] if embedded.attached() else []
            worker_processes = WorkerProcesses(commands)
            try:
                listen(listener)
                print(sample, end="", flush=True)
                serve(listener, settings.WEB_WORKERS, settings.WEB_THREADS)
            finally:
                worker_processes.end()
    except (embedded.EmbeddedServerFailed, ImproperlyConfigured, CommandError, PortTaken) as problem:
        sys.exit(f"{SERVE}: {problem}")
    except OperationalError as problem:
        sys.exit(f"{SERVE}: the database server does not answer: {problem}")
    except OSError as problem:
        if problem.filename is None:
            raise
        sys.exit(f"{SERVE}: {problem.filename}: {problem.strerror}")


def _prepare(prepare: Callable[[], object]) -> None:
    """Prepare the databases. A fenced installation starts too: its probes and metrics say why it serves nothing."""
    from django.core.management import CommandError

    try:
        prepare()
    except CommandError as problem:
        if problem.returncode != FENCED:
            raise
        print(f"{SERVE}: every request gets 503. {problem}", file=sys.stderr, flush=True)


class PortTaken(Exception):
    """Another program listens where this one should."""


def is_first_start() -> bool:
    """Whether the embedded databases have to be made. The settings make them, so this is asked before."""
    return text("DATABASE_URL") is None and not (state_folder() / "postgres").exists()


def sample_application(port: int) -> str:
    """Return the line that says where to sign in as a user of the demo tenant; empty without a sample application.

    If another program has its port, the user is told so and the platform starts without it.
    """
    from django.core.management import call_command

    line = io.StringIO()
    call_command("demo", sign_in=True, stdout=line)
    if not line.getvalue():
        return ""
    try:
        bound("127.0.0.1", port).close()
    except PortTaken:
        print(
            f"The sample application is not served: another program uses 127.0.0.1:{port}. Set DEMO_PORT to a free port.",
            file=sys.stderr,
            flush=True,
        )
        return ""
    return line.getvalue()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # Once is enough: a second signal must not break off the stopping of the embedded servers.
    for again in (signal.SIGTERM, signal.SIGINT):
        signal.signal(again, signal.SIG_IGN)
    sys.exit(0)


def bound(host: str, port: int) -> socket.socket:
    """A socket on that address that does not listen yet. Raises PortTaken."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as problem:
        listener.close()
        raise PortTaken(
            f"cannot listen on {host}:{port}: {problem.strerror}. Set HOST and PORT to a free address."
        ) from None
    return listener


def listen(listener: socket.socket) -> None:
    """Let connections in, and say where. Raises PortTaken."""
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(QUEUE)
    except OSError as problem:
        raise PortTaken(f"cannot listen on {host}:{port}: {problem.strerror}. Set PORT to a free one.") from None
    listener.setblocking(False)
    print(f"Serving on {address_of(host, port)}/ (Ctrl-C stops it)")
    # Django is not set up where this module is imported.
    from identity_platform.api.app_parts import api_part

    addresses = " and ".join(sorted(api_part().staff_pages))
    print(f"The API is described at /docs/, the operators' console is at {addresses}.", flush=True)


def address_of(host: str, port: int) -> str:
    """Where a browser on this machine finds the server.

    By name and not by number where both lead here: on an address that is a number there are no passkeys (WebAuthn level
    3, section 5.1.3: the effective domain), and the issuer of tokens is named so too.
    """
    with suppress(ValueError):
        number = ip_address(host)
        if number.is_loopback or number.is_unspecified:
            host = "localhost"
        elif number.version == 6:
            host = f"[{host}]"
    return f"http://{host}:{port}"


def load_before_forking() -> None:
    """Load what every request needs once, and leave nothing open that workers would share."""
    from django.db import connections
    from django.urls import get_resolver

    get_resolver().url_patterns  # noqa: B018  # reading it imports every view
    connections.close_all()
    # Objects that the collector never touches again stay shared between the workers.
    gc.collect()
    gc.freeze()
    gc.enable()


class _WakeupQueue:
    """A replacement for granian's threading.Event that loses no wakeup.

    granian silences its Event after it has looked why it rang: a signal or the end of a worker that comes in between
    would be heard only with the next one. An Event is not made for signal handlers either, which a queue is
    (https://docs.python.org/3.11/library/queue.html#simplequeue-objects).
    """

    def __init__(self) -> None:
        self._wakeups: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._wakeups.put(None)

    def wait(self) -> None:
        self._wakeups.get()

    def clear(self) -> None:
        """Nothing to silence: every ring is waited for once."""


class _Granian(MPServer):
    """granian on a socket that is ours.

    By default every worker opens the port again with SO_REUSEPORT. A second start would then succeed and take half of the
    connections, and those queued for a worker that dies would be lost with it.
    """

    listener: socket.socket

    def signal_handler_interrupt(self, *args: object, **kwargs: object) -> None:
        # A worker inherits this handler and keeps it until it installs its own: told to stop by then, it has nothing to
        # finish. Taken as if it were the parent, the signal would be lost and the worker killed ten seconds later. Ctrl-C
        # reaches a worker before it has a process group of its own: its parent heard it too, and tells it to stop.
        if os.getpid() != self.pid:
            if args[0] == signal.SIGTERM:
                os._exit(0)
            return
        super().signal_handler_interrupt(*args, **kwargs)  # type: ignore[no-untyped-call]  # granian is not annotated

    def _drop_shared_socket(self) -> None:
        """Stop in an order that loses no request of a proxy, before the workers are told to finish.

        For a moment every response ends its connection, so that none is left that the proxy could use just when it is
        closed. Then the workers are told to finish, and new connections are rejected, so that the proxy tries another
        instance: while the parent waits for its workers they would be queued, and lost when it ends.
        """
        STOPPING[0] = 1
        time.sleep(CLOSING_SECONDS)
        # Not before the workers have stopped accepting: a granian worker that meets a socket that was shut down never ends.
        reject = threading.Timer(STOP_ACCEPTING_SECONDS, self._reject_connections)
        reject.daemon = True
        reject.start()
        super()._drop_shared_socket()  # type: ignore[no-untyped-call]  # granian is not annotated

    def _reject_connections(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)

    def _init_shared_socket(self) -> None:
        self._ssp = None
        self._sso = self.listener
        holder: Any = SocketHolder  # its stub lacks the constructor
        self._shd = holder(self.listener.fileno(), False, QUEUE)


def _in_our_words(record: logging.LogRecord) -> bool:
    """Drop granian's warning about the number of threads, and say why a worker was ended.

    The settings give the reason for the number of threads. A worker that does not stop has a request or a half-sent one.
    """
    message = str(record.msg)
    if "refused to gracefully stop" in message:
        record.msg = f"A worker was ended with a request that was not finished after {FINISH_SECONDS} s"
    return "Configuration allows spawning up to" not in message


def serve(listener: socket.socket, workers: int, threads: int, *, module: str = PLATFORM) -> None:
    """Answer on the socket with the `application` of the module until a signal ends it; bin/bench runs others so."""
    host, port = listener.getsockname()[:2]
    logging.getLogger("_granian").addFilter(_in_our_words)
    server = _Granian(
        "",
        address=host,
        port=port,
        interface=Interfaces.WSGI,
        # HTTP/2 from the proxy brings nothing, and its bodies need neither Content-Length nor Transfer-Encoding.
        http=HTTPModes.http1,
        websockets=False,
        workers=workers,
        blocking_threads=threads,
        backlog=QUEUE,
        backpressure=CONNECTIONS_PER_WORKER,
        respawn_failed_workers=True,
        workers_kill_timeout=FINISH_SECONDS,
        log_level=LogLevels.warning,
        log_dictconfig={"loggers": {"_granian": {"propagate": True}, "granian.access": {"propagate": False}}},
    )
    server.listener = listener
    server.main_loop_interrupt = _WakeupQueue()  # type: ignore[assignment]  # all that granian asks of it
    try:
        server.serve(target_loader=partial(_application_of_a_worker, os.getpid(), module), wrap_loader=False)
    except SystemExit:
        # granian's 1 for a worker that ended unasked; one that heard the same signal as its parent was asked.
        if not server.interrupt_signal:
            raise


def _application_of_a_worker(parent: int, module: str) -> WSGIApplication:
    exit_with_parent(parent)
    # A terminal sends Ctrl-C to the whole group; the workers are told by their parent when to finish.
    os.setpgid(0, 0)
    application: WSGIApplication = importlib.import_module(module).application
    worker_starting.send(None)
    return application


if __name__ == "__main__":
    main()
