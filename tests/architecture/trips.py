"""The trip of a request through the code: the modules of the platform in which a function runs, and the rooms it enters."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from django.conf import settings

PACKAGES = ("console", "federation", "identity_platform", "mfa", "openid", "registry", "tenants", "userflow")


@dataclass
class Trip:
    modules: set[str] = field(default_factory=set)
    # How often a function of one room calls a function of another.
    entries: int = 0


@contextmanager
def trip() -> Iterator[Trip]:
    """Record the trip of what this thread does in the block; its other threads are not seen."""
    recorded = Trip()
    names: dict[str, str | None] = {}

    def module_of(frame: FrameType) -> str | None:
        filename = frame.f_code.co_filename
        if filename not in names:
            names[filename] = _module(filename)
        return names[filename]

    def note(frame: FrameType, event: str, _argument: object) -> None:
        # The body of a module or class runs when it is imported.
        if event != "call" or frame.f_code.co_name.startswith("<module"):
            return
        module = module_of(frame)
        if module is None:
            return
        recorded.modules.add(module)
        caller = frame.f_back
        while caller is not None and module_of(caller) is None:
            caller = caller.f_back
        if caller is not None and _room(str(module_of(caller))) != _room(module):
            recorded.entries += 1

    sys.setprofile(note)
    try:
        yield recorded
    finally:
        sys.setprofile(None)


def _module(filename: str) -> str | None:
    path = Path(filename)
    if not path.is_relative_to(settings.BASE_DIR):
        return None
    relative = path.relative_to(settings.BASE_DIR)
    return ".".join(relative.with_suffix("").parts) if relative.parts[0] in PACKAGES else None


def _room(module: str) -> str:
    return module.rpartition(".")[0]
