"""Databases that accept no connection in time, as during a DROP that hangs or while a catalog is locked.

The server keeps a backend for each attempt until the database responds again, also after the client has given up. Without a
pause the requests of one such tenant would take all connections of its server. So a few attempts are made at once, after one
that timed out a single one at a time, with growing pauses between them, and what is left on the server stays counted.
"""

import math
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from psycopg.errors import ConnectionTimeout

Key = tuple[int, int, str]

# Connections to one database that are being opened at once. Opening takes milliseconds.
MOST_OPENING: Final = 4
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
# Where the whole server is silent, so that its tenants are served soon after it is back.
SILENT_SERVER_PAUSE_SECONDS = 1.0
# After this time a backend that was left on the server counts no more: nothing tells when it has ended.
LEFT_SECONDS: Final = 900.0


@dataclass(slots=True)
class _Stuck:
    timeouts: int = 0
    paused_until: float = 0.0
    # When each of the backends was left (`time.monotonic()`).
    left: list[float] = field(default_factory=list)


class StuckDatabases:
    """What a pool knows of them. Call it under the pool's lock."""

    def __init__(self) -> None:
        self._opening: defaultdict[Key, int] = defaultdict(int)
        self._stuck: dict[Key, _Stuck] = {}

    def may_open(self, key: Key) -> bool:
        """Return whether another connection may be opened now. Raises ConnectionTimeout during a pause."""
        stuck = self._stuck.get(key)
        if stuck is None:
            return self._opening.get(key, 0) < MOST_OPENING
        left = stuck.paused_until - time.monotonic()
        if left > 0 or key in self._opening:
            raise ConnectionTimeout(
                f"The database has accepted no connection. The next attempt is made in {math.ceil(max(left, 1))} s."
            )
        return True

    def opens(self, key: Key) -> None:
        """Note that a connection is being opened."""
        self._opening[key] += 1

    def opened(self, key: Key, problem: BaseException | None, *, server_responds: bool) -> int:
        """Note the outcome of an attempt; return by how many fewer connections are now on the server.

        After a timeout the connection stays counted, so that is 0; after a success it is the number of those that were left.
        `server_responds`: other databases of the server were used meanwhile.
        """
        self._opening[key] -= 1
        if not self._opening[key]:
            del self._opening[key]
        if problem is None:
            stuck = self._stuck.pop(key, None)
            return len(stuck.left) if stuck else 0
        if not isinstance(problem, ConnectionTimeout):
            return 1
        stuck = self._stuck.setdefault(key, _Stuck())
        if server_responds:
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**stuck.timeouts)
            stuck.timeouts += 1
        else:
            pause = SILENT_SERVER_PAUSE_SECONDS
        stuck.paused_until = time.monotonic() + pause
        stuck.left.append(time.monotonic())
        return 0

    def forget_old(self) -> dict[int, int]:
        """Forget the backends that were left long ago; return how many by server."""
        before, forgotten = time.monotonic() - LEFT_SECONDS, defaultdict[int, int](int)
        for key, stuck in list(self._stuck.items()):
            recent = [left for left in stuck.left if left > before]
            forgotten[key[0]] += len(stuck.left) - len(recent)
            stuck.left = recent
            if not recent:
                del self._stuck[key]
        return forgotten
