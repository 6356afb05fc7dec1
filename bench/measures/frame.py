"""Target 20: how much of an authorized read is not about the read: middleware, paths, DRF's initialization, log and metrics.

The read runs in this process, and the stack is looked at once in each millisecond of CPU. What is being done is named by the
innermost part of the request's frame on the stack. Below authentication and the action everything is the read itself.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final
from wsgiref.types import WSGIEnvironment
from wsgiref.util import setup_testing_defaults

from bench import world
from bench.run import Row, Run
from bench.world import BenchTenant

MOST: Final = 0.25
REQUESTS: Final = 12_000
SMOKE_REQUESTS: Final = 200
INTERVAL_SECONDS: Final = 0.001
# By parts of the file's path and functions: the first that fits a call names it. Functions: any if empty.
AUTHENTICATION, ACTION, DJANGO = "authentication", "action", "Django's handler"
_PARTS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (AUTHENTICATION, "rest_framework/views.py", ("perform_authentication",)),
    (ACTION, "userflow/endusers/views.py", ("retrieve",)),
    ("paths", "django/urls/", ()),
    ("log", "structlog/", ()),
    ("log", "identity_platform/api/logs.py", ()),
    ("metrics", "identity_platform/api/metrics.py", ()),
    ("DRF", "rest_framework/", ()),
    ("DRF", "identity_platform/api/views.py", ()),
    *(
        ("middleware", place, ())
        for place in ("middleware", "tenants/addresses/hosts.py", "tenants/middleware/rejections.py", "openid/cors.py")
    ),
    (DJANGO, "django/core/handlers/", ()),
    (DJANGO, "identity_platform/wsgi.py", ()),
)


def measure(run: Run) -> list[Row]:
    """Return the share of the frame in the CPU of a read by a tenant's admin."""
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    read = _reads(tenant)
    requests = REQUESTS if run.seconds > 1 else SMOKE_REQUESTS
    with _silent():
        for _ in range(requests // 10):
            read()
        seen = _looked_at(read, requests)
    total = seen.total() or 1
    run.raw["frame"] = dict(seen)
    frame = {part: count for part, count in seen.items() if part not in (AUTHENTICATION, ACTION, DJANGO)}
    share = sum(frame.values()) / total
    parts = ", ".join(f"{part} {count / total:.1%}" for part, count in seen.most_common())
    return [
        Row(
            "20",
            "authorized read: middleware, paths, DRF's initialization, log and metrics",
            ours=f"{share:.1%} of the CPU in Python",
            against="–",
            ratio=share,
            wanted=f"≤ {MOST}",
            met=share <= MOST,
            beside=parts,
        )
    ]


def _reads(tenant: BenchTenant) -> Callable[[], None]:
    """Return a call of the WSGI application that reads one end user."""
    from identity_platform.wsgi import application

    environ: WSGIEnvironment = {
        "PATH_INFO": f"/uflow/user/enduser/{tenant.tenant_id}/{tenant.users[0]}",
        "QUERY_STRING": "",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_AUTHORIZATION": f"Bearer {tenant.token}",
    }
    setup_testing_defaults(environ)

    def read() -> None:
        statuses: list[str] = []

        def start(status: str, headers: list[tuple[str, str]], problem: object = None) -> Callable[[bytes], object]:
            statuses.append(status)
            return lambda _: None

        application(environ.copy(), start)
        assert statuses == ["200 OK"], statuses

    return read


def _looked_at(call: Callable[[], None], times: int) -> Counter[str]:
    """Call so often and return how often each part was seen; the caller's own loop is not counted."""
    seen = Counter[str]()

    def look(number: int, frame: FrameType | None) -> None:
        if part := _part(frame):
            seen[part] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)
    try:
        for _ in range(times):
            call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return seen


def _part(frame: FrameType | None) -> str | None:
    """Return the part that is running: of the outermost of authentication and action, else the innermost part there is."""
    found = None
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        part = _named(code.co_filename, code.co_name)
        if part in (AUTHENTICATION, ACTION):
            return part
        found = found or part
    return found


def _named(file: str, function: str) -> str | None:
    return next((part for part, path, names in _PARTS if path in file and (not names or function in names)), None)


@contextmanager
def _silent() -> Iterator[None]:
    """Discard standard error, to which each request writes a line."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
