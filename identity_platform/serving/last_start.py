"""Where the last start in embedded mode listens, for commands in another shell, which do not have its variables."""

import json
from pathlib import Path
from typing import Final, NamedTuple

from django.conf import settings

from identity_platform.environment import text

FILE: Final[Path] = settings.VAR / "last-start.json"


class Address(NamedTuple):
    """Host and port of the platform, and the port of the sample application."""

    host: str
    port: int
    demo_port: int


def remember() -> None:
    """Store where this process is about to listen."""
    FILE.write_text(json.dumps(_address_in_settings()._asdict()), encoding="utf-8")


def address() -> Address:
    """Return what the last start used, or this process's own settings if it has a port or nothing has started yet."""
    if text("PORT") or not FILE.exists():
        return _address_in_settings()
    return Address(**json.loads(FILE.read_text(encoding="utf-8")))


def _address_in_settings() -> Address:
    return Address(settings.HOST, settings.PORT, settings.DEMO_PORT)
