"""Plan and make the moves that empty a server or even servers out. None changes its region or labels."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Q

from tenants.errors import UnknownServer
from tenants.failure_reasons import why
from tenants.jobs.moves import move_tenant
from tenants.models import DatabaseServer, TenantDatabase
from tenants.states import State

# Those that `move_tenant` takes.
_MOVED = (State.ACTIVE, State.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Move:
    """One move of a plan. `target` is empty for a tenant that stays, and `obstacle` says why."""

    tenant_id: UUID
    slug: str
    source: str
    target: str
    obstacle: str = ""


# Servers that can stand in for one another: the region and the labels.
_Kind = tuple[str, frozenset[str]]


@dataclass(slots=True)
class _Server:
    name: str
    capacity: int
    tenant_count: int
    takes: bool

    def share(self, more: int = 0) -> float:
        """Return how full it would be with so many more tenants."""
        return (self.tenant_count + more) / self.capacity if self.capacity else 1.0

    @property
    def has_room(self) -> bool:
        return self.takes and self.tenant_count < self.capacity


def plan(*, drain: Iterable[str] = ()) -> list[Move]:
    """Return the moves that empty the drained servers and make the others of each kind equally full, as far as possible.

    Servers of a kind have the same region and the same labels. Equally full in relation to their capacity. Servers that
    accept no tenants get none, and keep theirs unless they are drained. Tenants that must stay on a drained server are
    named too. Five statements for any number of tenants. Raises UnknownServer.
    """
    of_kind, drained = _servers(set(drain))
    tenants, fixed = _tenants()
    planned_moves: list[Move] = []
    for servers in of_kind.values():
        for server in servers:
            if server.name in drained:
                planned_moves += [_moved(tenant, server, _emptiest(servers)) for tenant in tenants[server.name]]
                planned_moves += [_fixed(tenant, server) for tenant in fixed[server.name]]
        planned_moves += _evened_out([server for server in servers if server.takes], tenants)
    return planned_moves


def _servers(drain: set[str]) -> tuple[dict[_Kind, list[_Server]], set[str]]:
    not_deleted = Count("databases", filter=~Q(databases__status=State.DELETED))
    rows = DatabaseServer.objects.annotate(tenant_count=not_deleted).order_by("name")
    of_kind: dict[_Kind, list[_Server]] = defaultdict(list)
    names = set()
    for row in rows:
        names.add(row.name)
        takes = row.accepts_tenants and row.name not in drain
        kind = row.region, frozenset(row.labels)
        of_kind[kind].append(_Server(row.name, row.capacity, row.tenant_count, takes))
    if unknown := sorted(drain - names):
        raise UnknownServer(
            f"No database server has the name {', '.join(unknown)}. Known servers: {', '.join(sorted(names))}."
        )
    return of_kind, drain


def _tenants() -> tuple[dict[str, list[TenantDatabase]], dict[str, list[TenantDatabase]]]:
    """Return the tenants that can be moved and those that cannot, by server."""
    movable: dict[str, list[TenantDatabase]] = defaultdict(list)
    fixed: dict[str, list[TenantDatabase]] = defaultdict(list)
    rows = TenantDatabase.objects.select_related("tenant", "server").exclude(status=State.DELETED)
    for mapping in rows.order_by("pk"):
        (movable if mapping.status in _MOVED else fixed)[mapping.server.name].append(mapping)
    return movable, fixed


def _emptiest(servers: list[_Server]) -> _Server | None:
    return min((server for server in servers if server.has_room), key=lambda server: server.share(1), default=None)


def _moved(mapping: TenantDatabase, source: _Server, target: _Server | None) -> Move:
    if target is not None:
        source.tenant_count -= 1
        target.tenant_count += 1
    obstacle = "" if target else "no other server of its region and labels has room"
    return Move(mapping.pk, mapping.tenant.slug, source.name, target.name if target else "", obstacle)


def _fixed(mapping: TenantDatabase, source: _Server) -> Move:
    return Move(mapping.pk, mapping.tenant.slug, source.name, "", f"it is {mapping.status}, not active or suspended")


def _evened_out(servers: list[_Server], tenants: dict[str, list[TenantDatabase]]) -> list[Move]:
    planned_moves: list[Move] = []
    left = {server.name: list(tenants[server.name]) for server in servers}
    while (target := _emptiest(servers)) is not None:
        source = max((server for server in servers if left[server.name]), key=_Server.share, default=None)
        # A move helps only if the target is not fuller than the source afterwards.
        if source is None or target.share(1) > source.share(-1):
            break
        planned_moves.append(_moved(left[source.name].pop(), source, target))
    return planned_moves


def apply(planned_moves: Iterable[Move], progress: Callable[[Move, str], None]) -> int:
    """Make the moves, one at a time; return how many failed. `progress` gets each with the reason if it failed."""
    failed = 0
    for move in planned_moves:
        reason = move.obstacle
        if move.target:
            try:
                move_tenant(tenant_id=move.tenant_id, server=move.target)
                reason = ""
            except Exception as problem:
                reason = why(problem)
        failed += bool(reason)
        progress(move, reason)
    return failed
