"""What a drill acts on: the servers, the platform, and the load of the present run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from bench.home import ROOT, Home
from bench.servers import Server
from drill.cluster import Cluster, NotThere, SingleServer
from drill.instances import Front, Program
from drill.load import Client, Writer
from drill.mails import MailServer, Registrant
from drill.network import Network
from drill.sentinels import Sentinels
from drill.webhooks import Receiver

if TYPE_CHECKING:
    from bench.world import BenchTenant


# Of a command that must end by itself.
COMMAND_SECONDS = 60.0


@dataclass
class World:
    """The servers and the platform, which serve all drills; and what belongs to the present run.

    `kept`: what ends with the world. `network`: the machines of the cluster, in a world that has them.
    `front`: the instances behind nginx, in drills that have them, which start with `settings` (environment variables).
    `programs`, `sentinels`, `mail_server`, `receiver`: what else runs. `registrants`: who causes mails.
    `about`: the tenants that the fault is about. `lost`, `wrong`: what a drill itself has found, such as missing webhooks.
    `seconds`: how long the fault lasts, in drills where that can be chosen. `more_tenants`: besides those with writers.
    `connections`: the most that were counted, `connection_limit`: how many there may be, in drills that count them.
    """

    home: Home
    cluster: Cluster
    server: Server
    kept: ExitStack
    front: Front | None = None
    network: Network | None = None
    tenants: list[BenchTenant] = field(default_factory=list)
    more_tenants: list[BenchTenant] = field(default_factory=list)
    about: list[UUID] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    sentinels: Sentinels | None = None
    mail_server: MailServer | None = None
    receiver: Receiver | None = None
    registrants: list[Registrant] = field(default_factory=list)
    lost: int = 0
    wrong: int = 0
    seconds: float = 0.0
    connections: int = 0
    connection_limit: int = 0
    _second: SingleServer | None = None

    @property
    def port(self) -> int:
        """Where the load goes."""
        return self.front.port if self.front is not None else self.server.port

    def manage(self, *words: str, **settings: str) -> None:
        """Run a management command. Raises CalledProcessError."""
        self._run(words, b"", settings)

    def exit_code(self, *words: str, **settings: str) -> int:
        """Return the exit code of a management command; -1 if it did not end in time."""
        try:
            self._run(words, b"", settings, timeout=COMMAND_SECONDS)
        except subprocess.CalledProcessError as failure:
            return failure.returncode
        except subprocess.TimeoutExpired:
            return -1
        return 0

    def writers_of(self, tenant: UUID) -> list[Writer]:
        return [client for client in self.clients if isinstance(client, Writer) and client.tenant == tenant]

    def call(self, tenant: BenchTenant, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the body of a response to a tenant's admin. Raises NotThere if it is an error."""
        status, said = Client(self.port, tenant.tenant_id).call(method, path, body, tenant.token)
        if not 200 <= status < 300:
            raise NotThere(f"{method} {path}: {status}")
        return said

    def slug(self, tenant: UUID) -> str:
        from django.db import connections

        from tenants.models import Tenant

        # The primary may have changed since this process connected.
        connections.close_all()
        return Tenant.objects.values_list("slug", flat=True).get(pk=tenant)

    @contextmanager
    def tenant_database(self, tenant: UUID) -> Iterator[psycopg.Connection[Any]]:
        """A transaction of the superuser in the database of a tenant of the cluster."""
        from tenants.models import TenantDatabase

        name = TenantDatabase.objects.values_list("name", flat=True).get(tenant_id=tenant)
        with psycopg.connect(**self.cluster.node("leader").address(name)) as raw:
            # The database's own limit is for requests; a fault may last longer.
            raw.execute("SET idle_in_transaction_session_timeout = 0")
            yield raw

    def second_server(self) -> SingleServer:
        """Return a further database server, which the first call creates. Raises NotThere."""
        if self._second is None:
            server = SingleServer("second", self.cluster.home)
            self.kept.callback(server.end)
            server.create()
            self._run(("add_database_server", server.name, "-"), f"{server.url}\n".encode(), {})
            self._second = server
        return self._second

    def _run(
        self, words: tuple[str, ...], given: bytes, settings: dict[str, str], timeout: float | None = None
    ) -> None:
        command = [sys.executable, "-P", str(ROOT / "manage.py"), *words]
        environment = {**self.home.environment, **settings, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, env=environment, check=True, capture_output=True, input=given, timeout=timeout)
