"""Share the threads of a deliverer among tenants and receivers, so that slow ones do not hold up the others."""

import threading
from collections import Counter
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class QueuedEndpoint:
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
        self._waiting: dict[UUID, QueuedEndpoint] = {}
        # Turns that take place, by tenant and by host.
        self._turns: Counter[UUID | str] = Counter()
        self._lock = threading.Lock()

    def add(self, queued_endpoint: QueuedEndpoint) -> None:
        """Let an endpoint wait for a turn; one that waits already is not added again."""
        with self._lock:
            self._waiting.setdefault(queued_endpoint.endpoint_id, queued_endpoint)

    def take(self) -> QueuedEndpoint | None:
        """Return the first endpoint whose tenant and host may have another turn now, None if there is none.

        The caller calls `give_back` after the turn.
        """
        with self._lock:
            for queued_endpoint in self._waiting.values():
                if (
                    self._turns[queued_endpoint.tenant_id] < self._of_tenant
                    and self._turns[queued_endpoint.host] < self._of_host
                ):
                    del self._waiting[queued_endpoint.endpoint_id]
                    self._turns.update((queued_endpoint.tenant_id, queued_endpoint.host))
                    return queued_endpoint
        return None

    def give_back(self, queued_endpoint: QueuedEndpoint) -> None:
        """End the turn of an endpoint."""
        with self._lock:
            self._turns.subtract((queued_endpoint.tenant_id, queued_endpoint.host))
            # Without the zeros.
            self._turns = +self._turns
