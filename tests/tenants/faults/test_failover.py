"""The primary of a server with several hosts is lost and its standby promoted: requests go on with the new primary."""

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.utils import ConnectionHandler, InternalError

from tenants.copies import dumps
from tenants.database_servers import servers
from tenants.models import DatabaseServer, Tenant
from tests.machine.conftest import within
from tests.tenants.conftest import bring_template, throw_away
from tests.tenants.faults.cluster import Cluster, Node
from tests.world import Api, TestTenant, User, build_tenant

pytestmark = pytest.mark.quiet_machine

Member = tuple[TestTenant, User, Api]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.end()


@pytest.fixture(autouse=True)
def healthy(cluster: Cluster) -> None:
    """Both servers run when a test begins."""
    cluster.heal()


@pytest.fixture(scope="module")
def members(cluster: Cluster, django_db_setup: None, django_db_blocker: Any) -> Iterator[list[Member]]:
    """Tenants of the cluster, each with a user who is signed in."""
    name = f"pair-{secrets.token_hex(3)}"
    with django_db_blocker.unblock():
        bring_template(cluster.url)
        call_command("add_database_server", name, cluster.url, capacity=100_000)
        found = []
        for _ in range(3):
            tenant = build_tenant("pair")
            person = tenant.register()
            found.append((tenant, person, tenant.as_user(person)))
        server = DatabaseServer.objects.get(name=name)
        assert Tenant.objects.filter(database__server=server).count() == len(found)
        yield found
        cluster.heal()
        for tenant, _, _ in found:
            throw_away(tenant.row)
            Tenant.objects.filter(pk=tenant.id).delete()
        server.delete()


def read(member: Member) -> int:
    tenant, person, api = member
    return int(api.get(f"/uflow/user/enduser/{tenant.id}/{person.id}").status_code)


def write(member: Member, name: str) -> int:
    tenant, person, api = member
    return int(api.put(f"/uflow/user/enduser/{tenant.id}/{person.id}", {"name": name}).status_code)


def name_of(member: Member) -> str:
    tenant, person, api = member
    return str(api.get(f"/uflow/user/enduser/{tenant.id}/{person.id}").json()["name"])


def test_requests_go_on_with_the_promoted_standby(cluster: Cluster, members: list[Member]) -> None:
    for member in members:
        assert write(member, "acknowledged") == 200
    cluster.primary.kill()
    for member in members:
        assert read(member) == 503
    cluster.promote()
    assert within(1, lambda: {read(member) for member in members} == {200})
    assert [name_of(member) for member in members] == ["acknowledged"] * len(members)
    assert write(members[0], "after") == 200


def test_lost_machine_is_waited_for_once(cluster: Cluster, members: list[Member]) -> None:
    assert {read(member) for member in members} == {200}
    lost = cluster.primary
    lost.freeze()
    cluster.promote()
    # This request finds its connection hung, and is served by the other host.
    assert write(members[0], "elsewhere") == 200
    began = time.monotonic()
    assert {read(member) for member in members} == {200}
    assert time.monotonic() - began < 1
    assert name_of(members[0]) == "elsewhere"


def test_write_that_no_standby_has_is_not_acknowledged(cluster: Cluster, members: list[Member]) -> None:
    assert write(members[0], "confirmed") == 200
    cluster.standby.kill()
    # The platform gives up the commit, which waits for the standby. To the server that is a success with a warning.
    assert write(members[0], "unconfirmed") == 503


def test_dump_and_restore_use_the_primary(cluster: Cluster, members: list[Member], tmp_path: Path) -> None:
    # libpq gives up at a host that lacks the database: here the standby, which the URL names first and which lags behind.
    if cluster.primary.sockets.name == "a":
        cluster.primary.kill()
        cluster.promote()
        cluster.heal()
    cluster.standby.ask("SELECT pg_wal_replay_pause()")
    server = members[0][0].row.database.server
    name, copy = (f"{settings.TENANT_DATABASE_PREFIX}{secrets.token_hex(8)}" for _ in range(2))
    with servers.maintenance(server) as raw:
        try:
            raw.execute(f"CREATE DATABASE {name}")
            raw.execute(f"CREATE DATABASE {copy}")
            dumps.write_out(server, name, tmp_path / "dump")
            dumps.read_in(server, copy, tmp_path / "dump")
        finally:
            cluster.standby.ask("SELECT pg_wal_replay_resume()")
            for made in (name, copy):
                raw.execute(f"DROP DATABASE IF EXISTS {made}")


@pytest.fixture
def connect_to() -> Iterator[Callable[[Node], Any]]:
    """Return Django's wrapper of a connection to one server, as behind an address that leads to it."""
    opened = []

    def connect(node: Node) -> Any:
        stated = connection.settings_dict | {
            "NAME": "postgres",
            "USER": "postgres",
            "HOST": str(node.sockets),
            "PORT": "",
        }
        opened.append(ConnectionHandler({"default": stated})["default"])
        return opened[-1]

    yield connect
    for wrapper in opened:
        wrapper.close()


def fail_to_write(wrapper: Any) -> None:
    with wrapper.cursor() as cursor, pytest.raises(InternalError, match="read-only"):
        cursor.execute("CREATE TABLE written (number int)")


def test_connection_to_a_standby_is_closed_by_the_first_write(cluster: Cluster, connect_to: Any) -> None:
    wrapper = connect_to(cluster.standby)
    fail_to_write(wrapper)
    assert wrapper.connection.closed
    assert not wrapper.is_usable()


def test_connection_to_a_read_only_database_is_kept(cluster: Cluster, connect_to: Any) -> None:
    # As the database of a tenant that is being moved.
    wrapper = connect_to(cluster.primary)
    with wrapper.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    fail_to_write(wrapper)
    assert wrapper.is_usable()
