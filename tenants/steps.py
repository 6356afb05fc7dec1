"""The steps of the jobs on tenants' databases, told as they end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("steps_listener", default=None)


def completed(step: str) -> None:
    """Called with the name of the step that has just ended: the place where tests kill the process."""
    listener = _listener.get()
    if listener is not None:
        listener(step)


@contextmanager
def observed_by(listener: Callable[[str], None]) -> Iterator[None]:
    """Let `listener` hear of every step that ends in this context."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
