"""Leases of connections: what all processes on all hosts may open to a database server, counted in the global database.

A process leases a few connections at a time before its pool opens them; a pooled connection that is reused asks nothing.
One thread of the process talks to the global database, on a connection of its own: a lease is granted outside the request's
transaction. It renews the leases and hands back what the process does not use; it also reads the log levels that
operators set. The leases of a process that was killed are deleted by the others on its machine; those of a lost machine
expire. Commands do not lease; `settings.RESERVED_CONNECTIONS` of each server are left to them.
"""

import math
import os
import queue
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from multiprocessing.util import Finalize
from typing import Final
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
    connections,
    transaction,
)
from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce, Now
from psycopg import Error as DriverError
from psycopg import OperationalError

from identity_platform import processes
from identity_platform.postgresql import statement_timeout
from identity_platform.signals import worker_resting
from tenants import log_levels, operating_modes
from tenants.backend.pool import TenantConnectionPool
from tenants.backend.raw import TenantConnection
from tenants.backend.stuck import Key
from tenants.database_servers import queries, servers
from tenants.models import ConnectionLease, DatabaseServer

log = structlog.get_logger("identity.tenants")

# How many connections are leased at once. More would leave other processes without, fewer would cost more statements.
CHUNK: Final = 5
# A process keeps more connections than its base budget while less than this part of a server's is leased.
PLENTY: Final = 0.7
# How often a process renews, and after which part of its lease without success it closes its connections: the rest is for
# a renewal that hangs, so that they are closed before another process may lease them.
_RENEWALS: Final = 6
_TRUSTED: Final = 2 / 3
# How long a refusal holds for all threads of the process, so that a full server costs the global database little.
REFUSED_SECONDS: Final = 0.5
# How long a process keeps further idle connections of a tenant while there is plenty.
_SURPLUS_SECONDS: Final = 30.0
# How long a process that was refused makes others hand back what they do not use.
_PRESSURE: Final = timedelta(seconds=30)
# How long a request waits for the thread (REFUSED_SECONDS more): then it is as if the global database were away.
_REPLY_SECONDS: Final = 1.0
# How long the thread waits for a statement.
_STATEMENT_SECONDS: Final = 3.0
_READ_MODES_EVERY_SECONDS: Final = 1.0
# How long the end of a process waits for its thread.
_END_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class ServerUse:
    """The connections of one server. `refused`: a process with less than its share and base got none lately."""

    server: str
    # For all that is leased, and the part of it that is for connections to the global database.
    limit: int
    reserved: int
    # For connections to tenant databases: by all processes, and by this one.
    leased: int
    of_process: int
    processes: int
    refused: bool

    @property
    def taken(self) -> int:
        """What is leased by all processes, and what is kept for the planned workers' connections to the global database."""
        return self.reserved + self.leased

    @property
    def room(self) -> int:
        """How many more can be leased. Negative if more workers were started than planned."""
        return self.limit - self.taken

    @property
    def share(self) -> int:
        """The connections of one process if all had the same number."""
        return max(1, (self.limit - self.reserved) // max(1, self.processes))


def uses(server_ids: Iterable[int] | None = None, process: UUID | None = None) -> dict[int, ServerUse]:
    """Return the use of these servers, or of all whose limit is known, in one statement. `process` is the caller's."""
    live = Q(leases__expires_at__gt=Now())
    limited_servers = DatabaseServer.objects.filter(connection_limit__isnull=False)
    if server_ids is not None:
        limited_servers = limited_servers.filter(pk__in=server_ids)
    rows = limited_servers.values("pk", "name", "connection_limit").annotate(
        of_workers=Coalesce(Sum("leases__global_connections", filter=live & Q(leases__command="")), 0),
        of_commands=Coalesce(Sum("leases__global_connections", filter=live & ~Q(leases__command="")), 0),
        leased=Coalesce(Sum("leases__connections", filter=live), 0),
        of_process=Coalesce(Sum("leases__connections", filter=live & Q(leases__process=process)), 0),
        processes=Count("leases", filter=live),
        refused=Count("leases", filter=live & Q(leases__refused_at__gt=Now() - _PRESSURE)),
    )
    return {
        row["pk"]: ServerUse(
            server=row["name"],
            limit=max(0, (row["connection_limit"] or 0) - settings.RESERVED_CONNECTIONS),
            # A worker that has not started yet needs its connections to the global database as well.
            reserved=max(row["of_workers"], _planned(row["name"])) + row["of_commands"],
            leased=row["leased"],
            of_process=row["of_process"],
            processes=row["processes"],
            refused=row["refused"] > 0,
        )
        for row in rows
    }


def _planned(server: str) -> int:
    return servers.planned_connections() if server == servers.MAIN and not settings.PGBOUNCER else 0


class Reply(Enum):
    """What the thread replies to a request for connections."""

    GRANTED = "granted"
    REFUSED = "refused"
    # No process has read yet how many connections the server allows.
    UNKNOWN = "unknown"


@dataclass(slots=True)
class _Request:
    server_id: int
    limit: int | None = None
    done: threading.Event = field(default_factory=threading.Event)
    reply: Reply | None = None


class Leases:
    """The leases of this process, for its pool. They begin with `start`."""

    def __init__(self, pool: TenantConnectionPool, seconds: float) -> None:
        self._pool = pool
        self._chunk = min(CHUNK, pool.budget)
        self._seconds = timedelta(seconds=seconds)
        self._renew_every = seconds / _RENEWALS
        self._trusted_for = seconds * _TRUSTED
        # Connections to the global database that this process opens.
        self._global_connections, self._command = 0, ""
        self._reset()
        # The thread of the parent does not exist in a forked child, and the parent's leases are not the child's.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._process = uuid4()
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._starting, self._granting_alone = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._trusted_until = math.inf
        # Whether the global database did not respond to the last renewal.
        self._is_global_away = False
        self._refused_until: dict[int, float] = {}
        # What this process may lease of each server while the global database is away, as of the last renewal.
        self._shares: dict[int, int] = {}
        # Servers with unused leases at the last renewal.
        self._unused: set[int] = set()
        self._main_id: int | None = None

    def start(self, *, global_connections: int, command: str = "") -> None:
        """Lease from now on. This process may open so many `global_connections`: those to the global database.

        These are counted too, and never refused: without them no request can be served at all. `command` names the
        process if it is not a worker of the server.
        """
        self._global_connections, self._command = global_connections, command
        self._pool.lender = self
        self._run_thread()

    def end(self) -> None:
        """Close idle connections, then delete the leases. The process leases no more."""
        self._pool.lender = None
        with self._starting:
            thread, self._thread = self._thread, None
            requests, self._requests = self._requests, queue.SimpleQueue()
        if thread is not None:
            requests.put(None)
            thread.join(_END_SECONDS)
        self._pool.forget_leases()

    def counts(self, key: Key) -> bool:
        """Return whether connections to that server are leased: those behind a pooler are not."""
        return servers.is_counted(key[0], key[1])

    def ask(self, key: Key, connect: Callable[[], TenantConnection], deadline: float) -> bool:
        """Lease connections to the server of `key`; return whether there are any. Without a reply the process grants its own.

        Raises psycopg.OperationalError if the server is away, or the global database is and the limit of the server unknown.
        """
        server_id = key[0]
        if time.monotonic() < self._refused_until.get(server_id, 0.0):
            return False
        if self._is_global_away:
            # The thread may be waiting for the global database.
            return self._grant_alone(server_id, 1) == 1
        reply = self._send(_Request(server_id), min(deadline, time.monotonic() + _REPLY_SECONDS))
        if reply is None:
            # The global database hangs, or has just been lost.
            return self._grant_alone(server_id, 1) == 1
        if reply is Reply.UNKNOWN:
            # One connection that is not counted, once for each server: the reserved ones are for it too.
            reply = self._send(_Request(server_id, limit=_limit_of(connect())), deadline)
            if reply is None:
                raise OperationalError("The global database did not lease a connection in time.")
        return reply is Reply.GRANTED

    def _send(self, request: _Request, deadline: float) -> Reply | None:
        self._run_thread()
        self._requests.put(request)
        # A moment longer, so that a refusal at the end is told from a global database that is away.
        request.done.wait(max(0.0, deadline - time.monotonic()) + REFUSED_SECONDS)
        return request.reply

    def _run_thread(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(self._requests,), name="leases", daemon=True)
                self._thread.start()
                # Also at the end of a forked worker, where `atexit` is not called.
                Finalize(None, self.end, exitpriority=100)

    def _run(self, requests: "queue.SimpleQueue[_Request | None]") -> None:
        statement_timeout.limit(_STATEMENT_SECONDS)
        due = modes_due = 0.0
        operating_modes.read_in_background()
        while True:
            batch = _next_of(requests, min(due, modes_due) - time.monotonic())
            try:
                if time.monotonic() >= modes_due:
                    modes_due = time.monotonic() + _READ_MODES_EVERY_SECONDS
                    operating_modes.refresh()
                if time.monotonic() >= due:
                    due = time.monotonic() + self._renew_every
                    self._renew()
                    log_levels.refresh()
                    worker_resting.send(sender=Leases)
                for server_id, asking in _by_server(batch).items():
                    if self._is_global_away:
                        self._reply_alone(server_id, asking)
                    else:
                        self._grant(server_id, asking)
            except Exception as problem:  # without this thread the process could not open connections any more
                connections["default"].close()
                log.warning("leases_not_renewed", cause=type(problem).__qualname__)
                self._is_global_away = _is_away(problem)
                if self._is_global_away:
                    for server_id, asking in _by_server(batch).items():
                        self._reply_alone(server_id, asking)
            finally:
                for request in batch:
                    if request is not None:
                        request.done.set()
            self._give_up_untrusted()
            if None in batch:
                self._hand_back_all()
                return

    # --- in the thread: the global database ---------------------------------------------------------------------------

    def _grant(self, server_id: int, asking: list[_Request]) -> None:
        """Lease for all threads that ask for connections to this server, in one transaction."""
        self._give_up_untrusted()
        sent, leased = time.monotonic(), self._pool.leased(server_id)
        with transaction.atomic():
            # Locked until the row of this process is written: nothing is leased twice.
            rows = DatabaseServer.objects.select_for_update(no_key=True).only("name", "connection_limit")
            server = rows.get(pk=server_id)
            if server.connection_limit is None:
                server.connection_limit = next((request.limit for request in asking if request.limit is not None), None)
                if server.connection_limit is None:
                    for request in asking:
                        request.reply = Reply.UNKNOWN
                    return
                server.save(update_fields=["connection_limit"])
            use = uses([server_id], self._process)[server_id]
            # The row of this process may say more than it holds: if a response was lost, it holds less.
            room = use.room + use.of_process - leased
            # Beyond its base a process only saves the time to open connections again: there must be plenty.
            spare = room if leased < self._pool.base else room - math.ceil(use.limit * (1 - PLENTY))
            granted = max(0, min(max(self._chunk, len(asking)), spare))
            log.debug("connections_leased", server_id=server_id, held=leased, granted=granted, room=room)
            self._write(server_id, leased + granted, refused=room <= 0 and leased < min(use.share, self._pool.base))
        self._trusted_until = min(self._trusted_until, sent + self._trusted_for)
        if granted:
            self._pool.lend(server_id, granted)
        else:
            self._refused_until[server_id] = time.monotonic() + REFUSED_SECONDS
        for request in asking:
            request.reply = Reply.GRANTED if granted else Reply.REFUSED

    def _grant_alone(self, server_id: int, number: int) -> int:
        """Grant up to the base and the last known share while the global database is away; return how many.

        Other processes do the same: with their shares they stay within the limit. One that has started since has a chunk.
        """
        most = min(self._pool.base, self._shares.get(server_id, self._chunk))
        with self._granting_alone:
            granted = min(max(0, most - self._pool.leased(server_id)), number)
            if granted:
                self._pool.lend(server_id, granted)
        return granted

    def _reply_alone(self, server_id: int, asking: list[_Request]) -> None:
        granted = self._grant_alone(server_id, len(asking))
        for number, request in enumerate(asking):
            request.reply = Reply.GRANTED if number < granted else Reply.REFUSED

    def _renew(self) -> None:
        """Extend the leases, and hand back what is not used; for another process that got none also what is little used."""
        self._give_up_untrusted()
        sent = time.monotonic()
        ConnectionLease.objects.filter(Q(expires_at__lte=Now()) | Q(process__in=_killed())).delete()
        if self._global_connections and self._main_id is None and not settings.PGBOUNCER:
            self._main_id = DatabaseServer.objects.filter(name=servers.MAIN).values_list("pk", flat=True).first()
        # The row of a server without leases ends: it would count as a process that shares the server.
        leased_servers = [server_id for server_id in self._pool.servers_leased() if self._pool.leased(server_id)]
        uses_by_server = uses(leased_servers) if leased_servers else {}
        self._shares |= {server_id: use.share for server_id, use in uses_by_server.items()}
        for server_id in leased_servers:
            self._shrink(server_id, uses_by_server.get(server_id))
        for server_id in leased_servers if self._main_id is None else {*leased_servers, self._main_id}:
            if self._extend(server_id):
                continue
            if self._is_global_away:
                # Expired meanwhile. The connections are open: another process that has leased too many closes its own.
                self._write(server_id, self._pool.leased(server_id))
                continue
            # Deleted, or lost with the server that had it: others may have leased these connections.
            self._pool.revoke(server_id)
            if server_id == self._main_id:
                self._write(server_id, 0)
        self._trusted_until, self._is_global_away = sent + self._trusted_for, False

    def _shrink(self, server_id: int, use: ServerUse | None) -> None:
        """Lower what is leased in this process to what it uses. Connections are closed before their lease ends."""
        # A burst of requests of one tenant opens several; one is enough until the next burst.
        plenty = use is not None and use.room > use.limit * (1 - PLENTY)
        self._pool.close_surplus(server_id, idle_for=_SURPLUS_SECONDS if plenty else self._renew_every)
        if not math.isinf(self._pool.keep_seconds):
            self._pool.close_unused(server_id, keep=sys.maxsize, idle_for=self._pool.keep_seconds)
        if use is not None and (use.refused or use.room < 0):
            self._pool.close_unused(server_id, keep=use.share, idle_for=self._renew_every)
            self._pool.retract(server_id, step=1)
            return
        if not self._pool.has_unused(server_id, self._chunk):
            self._unused.discard(server_id)
        elif server_id in self._unused:
            self._pool.retract(server_id, step=self._chunk)
        else:
            self._unused.add(server_id)

    def _extend(self, server_id: int) -> bool:
        leases = ConnectionLease.objects.filter(process=self._process, server_id=server_id, expires_at__gt=Now())
        extended = leases.update(
            connections=self._pool.leased(server_id),
            global_connections=self._global_connections if server_id == self._main_id else 0,
            expires_at=Now() + self._seconds,
        )
        return extended > 0

    def _write(self, server_id: int, number: int, *, refused: bool = False) -> None:
        lease = ConnectionLease(
            process=self._process,
            server_id=server_id,
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            machine=processes.machine(),
            started=processes.started_at(os.getpid()),
            command=self._command,
            connections=number,
            global_connections=self._global_connections if server_id == self._main_id else 0,
            refused_at=Now() if refused else None,
            expires_at=Now() + self._seconds,
        )
        ConnectionLease.objects.bulk_create(
            [lease],
            update_conflicts=True,
            unique_fields=["process", "server"],
            update_fields=["connections", "global_connections", "refused_at", "expires_at"],
        )

    def _give_up_untrusted(self) -> None:
        if time.monotonic() >= self._trusted_until and not self._is_global_away:
            self._give_up()

    def _give_up(self) -> None:
        """Close what is leased: the leases may end before they can be renewed."""
        self._trusted_until = math.inf
        for server_id in self._pool.servers_leased():
            self._pool.revoke(server_id)

    def _hand_back_all(self) -> None:
        self._give_up()
        try:
            worker_resting.send(sender=Leases)
            ConnectionLease.objects.filter(process=self._process).delete()
        except (DatabaseError, DriverError) as problem:
            log.warning("leases_not_deleted", cause=type(problem).__qualname__)
        finally:
            connections["default"].close()


def _by_server(batch: Iterable[_Request | None]) -> dict[int, list[_Request]]:
    waiting: dict[int, list[_Request]] = defaultdict(list)
    for request in batch:
        if request is not None:
            waiting[request.server_id].append(request)
    return waiting


def _is_away(problem: Exception) -> bool:
    """Return whether the global database does not respond or does not store leases, as opposed to a defect of this code.

    Then no other process leases anything either.
    """
    defects = (ProgrammingError, IntegrityError, DataError)
    return isinstance(problem, DatabaseError | InterfaceError | DriverError) and not isinstance(problem, defects)


def _killed() -> list[UUID]:
    """Return the processes of this machine that have ended without deleting their leases: their connections are closed."""
    here = ConnectionLease.objects.filter(machine=processes.machine()).exclude(machine="")
    rows = here.values_list("process", "pid", "started").distinct()
    return [process for process, pid, started in rows if not processes.is_alive(pid, started)]


def _limit_of(raw: TenantConnection) -> int:
    try:
        row = raw.execute(queries.FREE_FOR_PLATFORM).fetchone()
    finally:
        raw.close()
    assert isinstance(row, tuple)  # no WHERE
    return int(row[0])


def _next_of(requests: "queue.SimpleQueue[_Request | None]", seconds: float) -> list[_Request | None]:
    """Return what waits in the queue, after at most so many seconds; an empty list if nothing came."""
    received: list[_Request | None] = []
    with suppress(queue.Empty):
        received.append(requests.get(timeout=max(0.0, seconds)))
        while True:
            received.append(requests.get_nowait())
    return received
