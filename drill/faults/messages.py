"""What happens to webhooks and mails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from bench.home import ROOT
from drill.cluster import NotThere, wait_until
from drill.instances import Program
from drill.load import Writer, load
from drill.mails import MailServer, Registrant, missing_mails, overtaken_mails
from drill.webhooks import Receiver, missing, out_of_order, receiving
from drill.world import World

DELIVERED_SECONDS = 120.0


@contextmanager
def delivering(world: World) -> Iterator[None]:
    """Two deliverers, and an endpoint of each tenant; every acknowledged change must arrive, in order."""
    with receiving() as receiver, webhook_endpoints(world, receiver), ExitStack() as stack:
        command = [str(ROOT / "manage.py"), "deliver_events"]
        world.programs = [Program(world.home, f"deliverer-{number}", command) for number in (1, 2)]
        for program in world.programs:
            stack.callback(program.kill)
            program.start()
        yield
        await_webhooks(world, receiver)


@contextmanager
def webhook_endpoints(world: World, receiver: Receiver) -> Iterator[None]:
    """Each tenant has an endpoint at the receiver during the block."""
    path = "/uflow/webhooks/endpoints"
    with ExitStack() as stack:
        for tenant in [*world.tenants, *world.more_tenants]:
            endpoint = world.call(tenant, "POST", path, {"url": receiver.url, "events": ["end_user.updated"]})
            stack.callback(world.call, tenant, "DELETE", f"{path}/{endpoint['id']}")
        yield


def await_webhooks(world: World, receiver: Receiver) -> None:
    """Wait until every acknowledged change has arrived; note what is missing or late."""
    writers = [client for client in world.clients if isinstance(client, Writer)]
    with suppress(NotThere):
        wait_until(DELIVERED_SECONDS, lambda: not any(undelivered(writers, receiver)), "Webhooks are missing")
    world.lost += sum(undelivered(writers, receiver))
    world.wrong += sum(out_of_order(writer.names, receiver.names(str(writer.user))) for writer in writers)


def undelivered(writers: list[Writer], receiver: Receiver) -> list[int]:
    return [missing(writer.names, receiver.names(str(writer.user))) for writer in writers]


def deliverer_is_killed(world: World) -> None:
    for program in world.programs:
        program.kill()
        time.sleep(3)
        program.start()
        time.sleep(5)


MAILS_ARRIVE_SECONDS = 180.0


@contextmanager
def mailing(world: World) -> Iterator[None]:
    """The instances send mails to a server of the drill, and one deliverer sends what they leave."""
    server = MailServer()
    server.start()
    world.mail_server = server
    world.settings = {"EMAIL_URL": server.url}
    command = [str(ROOT / "manage.py"), "deliver_events"]
    deliverer = Program(world.home, "mail-deliverer", command, **world.settings)
    world.programs = [deliverer]
    try:
        deliverer.start()
        yield
        await_mails(world, server)
    finally:
        deliverer.kill()
        server.stop()
        world.registrants = []


def await_mails(world: World, server: MailServer) -> None:
    """Wait until every acknowledged mail has arrived; note what is missing or overtaken."""
    with suppress(NotThere):
        seconds = MAILS_ARRIVE_SECONDS + world.seconds
        wait_until(seconds, lambda: not missing_mails(world.registrants, server), "Mails are missing")
    world.lost += missing_mails(world.registrants, server)
    world.wrong += overtaken_mails(world.registrants, server)


def mail_server_is_away(world: World) -> None:
    """The mail server stops, refuses, and hangs, while users register; an instance and the deliverer are killed meanwhile."""
    assert world.front is not None
    server, (deliverer,) = world.mail_server, world.programs
    assert server is not None
    world.registrants = [Registrant(world.port, tenant.tenant_id, tenant.client_id) for tenant in world.tenants]
    for registrant in world.registrants:
        registrant.keeps_connection = False
    phase_seconds = world.seconds / 3
    with load(world.registrants):
        time.sleep(5)
        server.stop()
        time.sleep(phase_seconds)
        instance = world.front.instances[0]
        world.front.nginx.reload(down=instance.port)
        time.sleep(1)
        instance.kill()
        deliverer.kill()
        deliverer.start()
        instance.start()
        world.front.nginx.reload()
        server.start()
        server.refuses = True
        time.sleep(phase_seconds)
        server.refuses, server.hangs = False, True
        time.sleep(phase_seconds)
        server.hangs = False
        time.sleep(5)
