"""A second installation with a copy of the global database, which is fenced until an operator adopts it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.home import ROOT
from bench.servers import free_port
from drill.cluster import Node, postgres_programs, wait_until
from drill.faults.messages import await_mails, await_webhooks, webhook_endpoints
from drill.instances import START_SECONDS, Instance, Program
from drill.load import Client, Writer, load
from drill.mails import HOST, MailServer, Registrant
from drill.webhooks import receiving
from drill.world import World

COPY = "identity_copy"
# A fenced process looks every two seconds whether it was adopted.
NOTICED_SECONDS = 30.0
# Responses that were on their way when the copy was adopted have arrived by then.
ON_THEIR_WAY_SECONDS = 1.0
FENCED_SECONDS = 5.0
# Mails and webhooks wait from then on: the first attempts at the mails have failed.
WAITING_SECONDS = 5.0
# The exit code of `prepare` in a fenced installation, and that of commands that write.
PREPARED_FENCED, REJECTED = 75, 2
TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"


@contextmanager
def with_waiting_messages(world: World) -> Iterator[None]:
    """Production sends no mail and no webhook, and a tenant without writers is there; afterwards a deliverer sends all."""
    from bench.world import tenants_with_users

    world.more_tenants = tenants_with_users(len(world.tenants) + 1, 1, lambda _: None)[-1:]
    world.settings = {"EMAIL_URL": f"smtp://{HOST}:{free_port()}?tls=off"}
    world.mail_server = server = MailServer()
    with receiving() as receiver, webhook_endpoints(world, receiver), ExitStack() as stack:
        world.receiver = receiver
        server.start()
        stack.callback(setattr, world, "registrants", [])
        stack.callback(server.stop)
        yield
        # The instances have ended.
        world.front = None
        deliverer = Program(world.home, "deliverer", [str(ROOT / "manage.py"), "deliver_events"], EMAIL_URL=server.url)
        stack.callback(deliverer.kill)
        deliverer.start()
        await_mails(world, server)
        await_webhooks(world, receiver)


def installation_is_copied(world: World) -> None:
    """Copy the global database, start the copy, adopt it, then adopt production again."""
    assert world.mail_server is not None
    _leave_messages(world)
    before = _contents(world)
    node = world.cluster.node("leader")
    url = world.home.environment["DATABASE_URL"].removesuffix("/identity") + f"/{COPY}"
    settings = {"DATABASE_URL": url, "EMAIL_URL": world.mail_server.url}
    copy = Instance(world.home, WEB_WORKERS="1", **settings)
    with ExitStack() as stack:
        stack.callback(_drop, node)
        _copy_global_database(node)
        stack.callback(copy.kill)
        # It is never ready.
        Program.start(copy)
        alive = Client(copy.port, world.tenants[0].tenant_id)
        wait_until(START_SECONDS, lambda: alive.call("GET", "/uflow/live")[0] == 200, "The copy does not start")
        _check_copy_is_fenced(world, copy, settings)
        _note(world, _contents(world) == before, "the copy has changed a tenant's database or the list of databases")
        _note(world, not _failures(world), f"{_failures(world)} requests to production failed beside the copy")
        stack.callback(_adopt_production, world, copy)
        _adopt_copy(world, copy, settings)
    writers = [client for client in world.clients if isinstance(client, Writer)]
    since = time.monotonic()
    wait_until(
        NOTICED_SECONDS, lambda: all(writer.last_change > since for writer in writers), "Production does not serve"
    )


def _leave_messages(world: World) -> None:
    """Let each tenant have mails and webhooks that wait."""
    (quiet,) = world.more_tenants
    world.registrants = [Registrant(world.port, each.tenant_id, each.client_id) for each in [*world.tenants, quiet]]
    for registrant in world.registrants:
        registrant.keeps_connection = False
    with load(world.registrants):
        time.sleep(2)
    world.call(quiet, "PUT", f"/uflow/user/enduser/{quiet.tenant_id}/{quiet.users[0]}", {"name": "Quiet"})
    time.sleep(WAITING_SECONDS)


def _contents(world: World) -> dict[str, object]:
    """Return a checksum of each table of the tenant without writers, and the databases of all tenants."""
    with world.tenant_database(world.more_tenants[0].tenant_id) as raw:
        contents: dict[str, object] = {
            name: raw.execute(
                sql.SQL("SELECT count(*), md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {} t").format(
                    sql.Identifier(name)
                )
            ).fetchone()
            for (name,) in raw.execute(TABLES).fetchall()
        }
        contents["databases"] = raw.execute("SELECT datname FROM pg_database ORDER BY 1").fetchall()
    with suppress(ValueError):
        contents["databases"].remove((COPY,))  # type: ignore[attr-defined]  # a list
    return contents


def _copy_global_database(node: Node) -> None:
    with psycopg.connect(**node.address(), autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {COPY} OWNER identity TEMPLATE template0 ENCODING 'UTF8'")
    file = node.disk.parent / f"{COPY}.dump"
    programs = postgres_programs()
    dump = [programs / "pg_dump", "--format=custom", f"--file={file}", make_conninfo(**node.address("identity"))]
    subprocess.run(dump, check=True, capture_output=True)
    into = make_conninfo(**node.address(COPY))
    restore = [programs / "pg_restore", "--no-owner", "--role=identity", "--exit-on-error", f"--dbname={into}", file]
    subprocess.run(restore, check=True, capture_output=True)


def _drop(node: Node) -> None:
    with psycopg.connect(**node.address(), autocommit=True) as raw:
        raw.execute(f"DROP DATABASE IF EXISTS {COPY} WITH (FORCE)")


def _check_copy_is_fenced(world: World, copy: Instance, settings: dict[str, str]) -> None:
    """Send requests to the copy and run its programs; note what it does nevertheless."""
    assert world.receiver is not None
    assert world.mail_server is not None
    for tenant in [*world.tenants, *world.more_tenants]:
        for method, path, body in _requests(world, tenant.tenant_id, tenant.users[0]):
            status, _ = Client(copy.port, tenant.tenant_id).call(method, path, body, tenant.token)
            _note(world, status == 503, f"the copy responds with {status} to {method} {path}")
    slug = world.slug(world.more_tenants[0].tenant_id)
    for words in (
        ("prepare", "--no-demo"),
        ("tenant_worker",),
        ("tenant_worker", "--once"),
        ("deliver_events",),
        ("purge_expired",),
        ("sync_directory", "--all-due"),
        ("migrate_tenants",),
        ("suspend_tenant", slug),
        ("rotate_signing_keys", "--tenant", slug),
    ):
        wanted = PREPARED_FENCED if words[0] == "prepare" else REJECTED
        code = world.exit_code(*words, **settings)
        _note(world, code == wanted, f"{' '.join(words)} of the copy ended with {code}, not {wanted}")
    users = [str(user) for tenant in [*world.tenants, *world.more_tenants] for user in tenant.users]
    emails = [email for registrant in world.registrants for email in registrant.caused]
    _note(world, not any(world.receiver.names(user) for user in users), "the copy has sent webhooks")
    _note(world, not any(world.mail_server.languages(email) for email in emails), "the copy has sent mails")


def _requests(world: World, tenant: UUID, user: UUID) -> Iterator[tuple[str, str, Any]]:
    yield "GET", "/uflow/ready", None
    yield "GET", "/uflow/auth/jwks", None
    yield "GET", f"/t/{world.slug(tenant)}/jwks", None
    yield "GET", f"/uflow/user/enduser/{tenant}/{user}", None
    yield "PUT", f"/uflow/user/enduser/{tenant}/{user}", {"name": "Written by the copy"}
    yield "POST", "/exsvc/api/v1/services", {"name": "Copy", "type": "crm", "base_url": "https://crm.example.com"}


def _adopt_copy(world: World, copy: Instance, settings: dict[str, str]) -> None:
    """Make the copy production; from then on the former one must write nothing, and all that it acknowledged be there."""
    world.manage("adopt_installation", "--yes", **settings)
    time.sleep(ON_THEIR_WAY_SECONDS)
    acknowledged = _acknowledged(world)
    time.sleep(FENCED_SECONDS)
    late = _acknowledged(world) - acknowledged
    _note(world, not late, f"production has acknowledged {late} writes after the copy was adopted")
    wait_until(NOTICED_SECONDS, copy.is_whole, "The adopted copy is not ready")
    for writer in (client for client in world.clients if isinstance(client, Writer)):
        reader = Client(copy.port, writer.tenant)
        reader.headers = writer.headers
        status, body = reader.call("GET", writer.path)
        _note(world, status == 200, f"the adopted copy responds with {status} to GET {writer.path}")
        world.lost += status == 200 and body.get("name") not in writer.possible


def _adopt_production(world: World, copy: Instance) -> None:
    assert world.front is not None
    world.manage("adopt_installation", "--yes")
    for instance in world.front.instances:
        wait_until(NOTICED_SECONDS, instance.is_whole, f"{instance.name} is not ready")
    for tenant in world.tenants:
        path = f"/uflow/user/enduser/{tenant.tenant_id}/{tenant.users[0]}"
        status, _ = Client(copy.port, tenant.tenant_id).call("GET", path, token=tenant.token)
        _note(world, status == 503, f"the copy responds with {status} after production was adopted")


def _acknowledged(world: World) -> int:
    return sum(client.heard.acknowledged for client in world.clients)


def _failures(world: World) -> int:
    """Return how many requests to production have failed so far."""
    return sum(
        number
        for client in world.clients
        for status, number in dict(client.heard.statuses).items()
        if not status.startswith("2")
    )


def _note(world: World, holds: bool, problem: str) -> None:
    if not holds:
        world.wrong += 1
        print(f"installation_is_copied: {problem}", file=sys.stderr)
