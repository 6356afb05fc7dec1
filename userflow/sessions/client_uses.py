"""When clients were last used: noted by requests, stored every few seconds by a thread of the worker.

So no request of a client or its users writes to the global database. A process that is killed loses the uses of some seconds.
"""

import threading
import time
from datetime import timedelta
from typing import Final
from uuid import UUID

import structlog
from django.db import DatabaseError, InterfaceError
from django.db.models import Q
from django.db.models.functions import Now
from psycopg import Error as DriverError

from tenants import operating_modes
from userflow.accounts.models import Client

log = structlog.get_logger("identity.clients")

# The stored time is exact to a minute: to store each use would cost too much.
_STORE_AGAIN_SECONDS: Final = 60.0
_EXACT_TO: Final = timedelta(seconds=_STORE_AGAIN_SECONDS)
_lock = threading.Lock()
_noted: set[UUID] = set()
_stored_at: dict[UUID, float] = {}


def note(client_id: UUID) -> None:
    """Note that the client is in use now."""
    _noted.add(client_id)


def store(**_: object) -> None:
    """Store the uses that were noted and are not stored in the last minute, unless the platform has a mode."""
    if not _noted or operating_modes.is_background_paused():
        return
    moment = time.monotonic()
    with _lock:
        for client_id in [known for known, at in _stored_at.items() if moment - at >= _STORE_AGAIN_SECONDS]:
            del _stored_at[client_id]
        due = [client_id for client_id in _noted.copy() if client_id not in _stored_at]
        if not due:
            _noted.clear()
            return
        try:
            is_older = Q(last_used_at=None) | Q(last_used_at__lt=Now() - _EXACT_TO)
            Client.objects.filter(is_older, pk__in=due).update(last_used_at=Now())
        except (DatabaseError, InterfaceError, DriverError) as problem:
            # The next round does.
            log.warning("client_uses_not_stored", clients=len(due), cause=type(problem).__name__)
            return
        _noted.difference_update(due)
        _stored_at.update(dict.fromkeys(due, moment))
