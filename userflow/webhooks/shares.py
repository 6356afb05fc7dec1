"""Share the threads of a deliverer among tenants and receivers, so that slow ones do not hold up the others."""

import threading
from collections import Counter
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Place:
    """An endpoint that gets a turn: of which tenant it is, and the host of its address."""

    tenant_id: UUID
    endpoint_id: UUID
    host: str


class Shares:
    """The endpoints that wait for a turn, and the turns that take place.

    At most a quarter of the threads serve one tenant, and at most half of them one host: several tenants may use it. The
    others of it wait in their order.
    """

    def __init__(self, threads: int) -> None:
        self._of_tenant = max(1, threads // 4)
        self._of_host = max(1, threads // 2)
        self._waiting: dict[UUID, Place] = {}
        # Turns that take place, by tenant and by host.
        self._turns: Counter[UUID | str] = Counter()
        self._lock = threading.Lock()

    def add(self, place: Place) -> None:
        """Let an endpoint wait for a turn; one that waits already is not added again."""
        with self._lock:
            self._waiting.setdefault(place.endpoint_id, place)

    def take(self) -> Place | None:
        """Return the first endpoint whose tenant and host may have another turn now, None if there is none.

        The caller calls `give_back` after the turn.
        """
        with self._lock:
            for place in self._waiting.values():
                if self._turns[place.tenant_id] < self._of_tenant and self._turns[place.host] < self._of_host:
                    del self._waiting[place.endpoint_id]
                    self._turns.update((place.tenant_id, place.host))
                    return place
        return None

    def give_back(self, place: Place) -> None:
        """End the turn of an endpoint."""
        with self._lock:
            self._turns.subtract((place.tenant_id, place.host))
            # Without the zeros.
            self._turns = +self._turns
