"""From where and by whom the running code was called; set by the middleware and by authentication."""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asks, from which address, in which request."""

    actor_kind: str = "system"
    actor_id: str = ""
    address: str = ""
    request_id: str = ""


_origin: ContextVar[Origin] = ContextVar("origin", default=Origin())


def current_origin() -> Origin:
    """The origin of the running call; `system` outside a request."""
    return _origin.get()


def set_origin(origin: Origin) -> None:
    """Begin a request (or a command) with this origin."""
    _origin.set(origin)


def set_actor(kind: str, actor_id: str) -> None:
    """The caller is known now."""
    known = _origin.get()
    _origin.set(Origin(kind, actor_id, known.address, known.request_id))
