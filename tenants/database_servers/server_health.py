"""How the database servers are, checked once a minute from one host and stored for all of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import psycopg
import structlog
from django.db import connections
from django.db.models import Count, Q
from django.utils.timezone import now

from tenants.database_servers import fence_counters, fences, queries, servers
from tenants.errors import InstallationFenced
from tenants.failure_reasons import why
from tenants.models import DatabaseServer, ServerHealth
from tenants.states import State

log = structlog.get_logger("identity.tenants")

# A server that is away takes five seconds to say so, and must not delay the others.
_AT_ONCE: Final = 8


def check_servers(until: Callable[[], bool] = lambda: False) -> list[str]:
    """Connect to every server and store what it says; return the names of those that did not respond.

    Connects past any pooler. `until` tells when to stop early. Raises InstallationFenced.
    """
    # The global database may have been restored under a running process.
    if reasons := fences.look(again=True):
        raise InstallationFenced(" ".join(reasons))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="health") as threads:
        attached = DatabaseServer.objects.filter(detached=False).order_by("pk")
        checked = threads.map(lambda server: None if until() else _check(server), attached)
        return [health.server.name for health in checked if health is not None and not health.responds]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A database server as it is now. `failure` says why it could not be asked."""

    name: str
    host: str
    tenants: int
    capacity: int
    accepts_tenants: bool
    region: str
    failure: str = ""
    milliseconds: float | None = None
    postgresql: str | None = None
    connections: int | None = None
    max_connections: int | None = None
    databases: int | None = None
    wal_level: str | None = None


def server_facts() -> list[ServerFacts]:
    """Connect to every server past any pooler and return what it says. Stores nothing, so it works while fenced."""
    taken = Count("databases", filter=~Q(databases__status=State.DELETED))
    attached = list(DatabaseServer.objects.filter(detached=False).annotate(taken=taken).order_by("name"))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="facts") as threads:
        return list(threads.map(_facts, attached))


def _facts(server: DatabaseServer) -> ServerFacts:
    said: dict[str, Any] = {}
    try:
        began = perf_counter()
        with servers.maintenance(server) as raw:
            said["milliseconds"] = round((perf_counter() - began) * 1000, 1)
            said |= queries.version_and_use(raw)._asdict()
    except Exception as problem:
        said["failure"] = why(problem)
    finally:
        # The thread ends with the call.
        connections["default"].close()
    return ServerFacts(
        name=server.name,
        host=server.host,
        tenants=getattr(server, "taken", 0),
        capacity=server.capacity,
        accepts_tenants=server.accepts_tenants,
        region=server.region,
        **said,
    )


def _check(server: DatabaseServer) -> ServerHealth:
    health = ServerHealth(server=server, responds=False, checked_at=now())
    try:
        began = perf_counter()
        with servers.maintenance(server) as raw:
            health.seconds = perf_counter() - began
            health.connections, health.max_connections, limit = queries.server_state(raw)
            health.responds = True
            # It changes with a restart of the server, if at all.
            DatabaseServer.objects.filter(pk=server.pk).exclude(connection_limit=limit).update(connection_limit=limit)
            # Another copy of this installation that starts later is behind this.
            fence_counters.beat(server)
    except psycopg.Error:
        pass
    except Exception as problem:
        # For example, its URL cannot be decrypted. The other servers are checked all the same.
        log.warning("database_server_not_checked", server=server.name, cause=why(problem))
    try:
        health.tenants = server.databases.exclude(status=State.DELETED).count()
        _save(health)
    finally:
        # The thread ends with the check.
        connections["default"].close()
    return health


def _save(health: ServerHealth) -> None:
    fields = ("responds", "seconds", "connections", "max_connections", "tenants", "checked_at")
    ServerHealth.objects.update_or_create(
        server=health.server, defaults={field: getattr(health, field) for field in fields}
    )
