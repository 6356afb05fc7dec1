"""The levels of the platform's loggers: LOG_LEVEL, and other ones for a limited time."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from identity_platform.api.app_parts import api_part

LEVELS: Final = ("debug", "info", "warning", "error")
# Of all areas that have no level of their own.
PLATFORM: Final = ""
_PREFIX: Final = "identity."


def areas() -> tuple[str, ...]:
    """Return the areas of the core and of the apps: ends of the names of loggers, as in `identity.mail`."""
    return tuple(sorted(api_part().log_areas))


@dataclass(frozen=True, slots=True)
class TimedLevel:
    """A level, and the `time.monotonic` at which it ends: a process that cannot read the end falls back by itself."""

    level: int
    ends_at: float


_configured = logging.INFO
_timed: Mapping[str, TimedLevel] = {}


def configure(level: int) -> None:
    """Set the level that applies where no other one is set: LOG_LEVEL."""
    global _configured
    _configured = level


def replace(timed: Mapping[str, TimedLevel]) -> None:
    """Set the timed levels by area, in place of those that were set."""
    global _timed
    _timed = timed


def is_enabled(logger: str, level: int) -> bool:
    """Return whether a logger (`identity.webhooks`) writes lines of this level now."""
    timed = _timed
    if timed:
        now = time.monotonic()
        for area in (logger.removeprefix(_PREFIX), PLATFORM):
            timed_level = timed.get(area)
            if timed_level is not None and now < timed_level.ends_at:
                return level >= timed_level.level
    return level >= _configured
