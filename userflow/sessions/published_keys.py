"""Keys that clients publish at their `jwks_uri`: fetched when they are needed and cached in the process.

A client's host may be slow, down or hostile. It is asked once a minute at most, for a few seconds, and only one request waits
for it; keys from before stay valid for a day if it fails.
"""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import orjson
import requests
import structlog

from identity_platform import outbound
from identity_platform.outbound import GuardedSession, TargetRejected
from identity_platform.semaphore import Semaphore
from userflow.errors import ClientKeysBusy
from userflow.sessions.client_keys import ClientKey, KeySetInvalid, reach, read_key_set

log = structlog.get_logger("identity.clients")

MOST_CLIENTS: Final = 1000
FRESH_SECONDS: Final = 3600.0
KEPT_SECONDS: Final = 86_400.0
AGAIN_SECONDS: Final = 60.0
FETCH_SECONDS: Final = 5.0
LONGEST_ANSWER: Final = 65_536

_semaphore = Semaphore.for_slow_requests("client_keys", ClientKeysBusy)


@dataclass(slots=True)
class _Published:
    keys: tuple[ClientKey, ...] = ()
    fetched_at: float = float("-inf")
    tried_at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def knows(self, kid: str | None, moment: float) -> bool:
        """Return whether the keys are fresh and the named one is among them."""
        is_known = kid is None or any(key.kid == kid for key in self.keys)
        return bool(self.keys) and is_known and moment - self.fetched_at < FRESH_SECONDS

    def valid(self, moment: float) -> tuple[ClientKey, ...]:
        """Return the keys unless they are too old to be trusted."""
        return self.keys if moment - self.fetched_at < KEPT_SECONDS else ()


_published: OrderedDict[tuple[UUID, str], _Published] = OrderedDict()
_lock = threading.Lock()


def published_keys(client_id: UUID, uri: str, kid: str | None, *, authorities: str) -> tuple[ClientKey, ...]:
    """Return the keys at the `jwks_uri` of a client; none if they cannot be fetched.

    They are fetched again after an hour, or for a `kid` that is not among them. `authorities` are those of the client's
    tenant. Raises ClientKeysBusy.
    """
    entry = _entry(client_id, uri)
    if entry.knows(kid, time.monotonic()) or not entry.lock.acquire(timeout=FETCH_SECONDS):
        return entry.valid(time.monotonic())
    try:
        moment = time.monotonic()
        if not entry.knows(kid, moment) and moment - entry.tried_at >= AGAIN_SECONDS:
            with _semaphore.acquire():
                entry.tried_at = moment
                if keys := _fetch(client_id, uri, authorities):
                    entry.keys, entry.fetched_at = keys, moment
        return entry.valid(moment)
    finally:
        entry.lock.release()


def _entry(client_id: UUID, uri: str) -> _Published:
    with _lock:
        entry = _published.setdefault((client_id, uri), _Published())
        _published.move_to_end((client_id, uri))
        if len(_published) > MOST_CLIENTS:
            _published.popitem(last=False)
        return entry


def _fetch(client_id: UUID, uri: str, authorities: str) -> tuple[ClientKey, ...]:
    session = GuardedSession(reach(), authorities=authorities)
    try:
        answer = outbound.get(
            session, uri, headers={"Accept": "application/json"}, seconds=FETCH_SECONDS, most=LONGEST_ANSWER
        )
        if answer.status != 200:
            raise KeySetInvalid(f"status {answer.status}")
        return read_key_set(orjson.loads(answer.beginning), lenient=True)
    except (requests.RequestException, TargetRejected, ValueError) as problem:
        # KeySetInvalid and JSON errors are ValueErrors. The answer itself is not logged.
        log.warning("client.keys_not_fetched", client_id=str(client_id), problem=type(problem).__name__)
        return ()
    finally:
        session.close()
