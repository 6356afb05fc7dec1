"""Which tenants a periodic task has to visit: those whose database was written since its last visit.

A visit opens a connection, which costs the server a process and cold catalogs: for a round through all tenants more than the
work itself. PostgreSQL counts the rows that are written in each database (`pg_stat_database`), and one statement reads the
counts of a whole server. They come late, by seconds (`PGSTAT_IDLE_INTERVAL`, `PGSTAT_MAX_INTERVAL`), and rows may wait for
other transactions; so a database is visited until one visit was long enough after its last change.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from tenants import operating_modes
from tenants.database_servers import queries, servers
from tenants.failure_reasons import why
from tenants.models import DatabaseServer, TenantDatabase
from tenants.states import State

log = structlog.get_logger("identity.tenants")

# Counts come a minute late at most, and events are settled after another one (console.metrics.actions.SETTLED_SECONDS).
SETTLED_SECONDS: Final = 120.0
# Some values change with time alone, and a server may have lost its counts.
ANYWAY_SECONDS: Final = 3600.0


@dataclass(slots=True)
class _Known:
    """How many rows were written, when this number was first read, and when the tenant was visited since."""

    writes: int
    since: float
    visited_at: float = -math.inf


class Visits:
    """The visits of one periodic task of this process."""

    def __init__(self, *, settled: float = SETTLED_SECONDS, anyway: float = ANYWAY_SECONDS) -> None:
        self._settled = settled
        self._anyway = anyway
        self._known: dict[UUID, _Known] = {}

    def unchanged(self) -> set[UUID]:
        """Return the tenants that need no visit now. Opens one connection to each server."""
        known: dict[UUID, _Known] = {}
        moment = time.monotonic()
        for tenant_id, writes in _writes():
            before = self._known.get(tenant_id)
            known[tenant_id] = before if before and before.writes == writes else _Known(writes, moment)
        self._known = known
        return {
            tenant_id
            for tenant_id, each in known.items()
            if each.visited_at >= each.since + self._settled and each.visited_at > moment - self._anyway
        }

    def visited(self, tenant_id: UUID) -> None:
        """Note that the tenant was visited, and nothing was left to do."""
        if (known := self._known.get(tenant_id)) is not None:
            known.visited_at = time.monotonic()


def _writes() -> Iterator[tuple[UUID, int]]:
    """Yield each tenant with the rows written in its database. Those of servers that do not respond are missing."""
    databases = TenantDatabase.objects.exclude(status=State.DELETED).values_list("server_id", "name", "tenant_id")
    tenants = {(server_id, name): tenant_id for server_id, name, tenant_id in databases.iterator()}
    used = DatabaseServer.objects.filter(detached=False, pk__in={server_id for server_id, _ in tenants})
    for server in used.exclude(pk__in=operating_modes.closed_servers()):
        try:
            with servers.maintenance(server) as raw:
                # Of a server that counts nothing, every tenant is visited.
                rows = queries.rows_written(raw)
        except Exception as problem:
            # Its tenants are visited, which notes the failure of each.
            log.info("writes_not_counted", server=server.name, cause=why(problem))
            continue
        for name, writes in rows:
            if (tenant_id := tenants.get((server.pk, name))) is not None:
                yield tenant_id, writes
