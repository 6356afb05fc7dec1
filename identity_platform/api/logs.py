"""Structured logs: one JSON object per line on standard error, with the request id and without secrets."""

import logging
import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache

import orjson
import structlog
from structlog.typing import EventDict, Processor

from identity_platform.api import log_levels

# Values under these names are masked, in case a secret is logged by mistake.
SECRET_NAME = re.compile(
    r"password|secret|token|code|authorization|cookie|credential|otp|challenge|signature|api_?key", re.IGNORECASE
)
STANDARD_ERROR = 2
REQUESTS = "identity.requests"
# Their messages contain statements, parameters or paths with personal data.
SILENCED = ("django.db.backends", "django.request", "django.security.DisallowedHost", "faker", "urllib3")


def drop_below_level(logger: "LineLogger", method: str, event: EventDict) -> EventDict:
    """Drop a line below the level of its logger, which an operator can change while the process runs."""
    if log_levels.is_enabled(logger.name, structlog.processors.NAME_TO_LEVEL[method]):
        return event
    raise structlog.DropEvent


def hide_secrets(_: object, __: str, event: EventDict) -> EventDict:
    """Mask values whose name says that they are secret."""
    for name in event:
        if _is_secret(name):
            event[name] = "***"
    return event


@lru_cache(maxsize=1000)
def _is_secret(name: str) -> bool:
    return name != "event" and SECRET_NAME.search(name) is not None


def _drop_request(_: object, __: str, event: EventDict) -> EventDict:
    """Drop the request that Django's loggers add: its text contains the path and the query."""
    event.pop("request", None)
    return event


def _name_exception(_: object, __: str, event: EventDict) -> EventDict:
    """Log only the type of a library's exception: its text may quote statements, paths and values."""
    problem = event.pop("exc_info", None)
    if problem:
        event["kind"] = problem[0].__qualname__ if isinstance(problem, tuple) else type(problem).__qualname__
    return event


def _line(event: object, **_: object) -> str:
    return orjson.dumps(event, default=str).decode()


def log_request(fields: dict[str, object]) -> None:
    """Write the line of a served request, unless the level is above INFO.

    A line as all others, but its names are fixed and none is secret: structlog's processors took 4 % of a read's CPU.
    """
    if log_levels.is_enabled(REQUESTS, logging.INFO):
        said = {"event": "request", "level": "info", "timestamp": datetime.now(UTC)}
        line = {**fields, **said, **structlog.contextvars.get_contextvars()}
        write_line(orjson.dumps(line, option=orjson.OPT_UTC_Z).decode())


def write_line(line: str) -> None:
    """Write one line to standard error by one system call, newline included.

    Threads and worker processes share the descriptor. `print` writes the newline by itself where Python does not buffer
    (PYTHONUNBUFFERED), and another line comes in between. One write of up to PIPE_BUF (4096) bytes is never split on a
    pipe; on a file the kernel keeps writes through one descriptor apart.
    """
    left = f"{line}\n".encode()
    # A log on a full disk or a closed pipe must not fail the request.
    with suppress(OSError):
        while left:
            left = left[os.write(STANDARD_ERROR, left) :]


class LineLogger:
    """The logger that structlog writes to. Its name decides on its level, and is not part of a line."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def msg(self, message: str) -> None:
        write_line(message)

    log = debug = info = warn = warning = error = err = critical = fatal = failure = exception = msg


class LineHandler(logging.Handler):
    """The handler of the standard library's loggers."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            write_line(self.format(record))
        except Exception:
            self.handleError(record)


def configure(options: dict[str, str]) -> None:
    """Django's LOGGING_CONFIG: structlog and the standard library's loggers write the same lines.

    Libraries keep their level: their debug messages quote statements, headers and addresses.
    """
    level = logging.getLevelNamesMapping().get(options["level"], logging.INFO)
    log_levels.configure(level)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]
    structlog.configure(
        processors=[drop_below_level, *shared, structlog.processors.JSONRenderer(serializer=_line)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=LineLogger,
        cache_logger_on_first_use=True,
    )
    handler = LineHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _drop_request],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _name_exception,
                structlog.processors.JSONRenderer(serializer=_line),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))
    for name in SILENCED:
        logging.getLogger(name).setLevel(logging.CRITICAL)
