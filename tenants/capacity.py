"""The database servers, and which of them takes the next tenant."""

from collections.abc import Callable
from functools import partial

import psycopg
from django.conf import settings
from django.db import transaction

from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql.row_errors import first_or
from tenants import servers
from tenants.errors import NoRoom, ServerExists, ServerUnfit, UnknownServer
from tenants.models import DatabaseServer
from tenants.queries import roomiest_server
from tenants.servers import Connection, Parameters

# The first release with CREATE DATABASE … STRATEGY wal_log.
OLDEST_POSTGRESQL = 150_000


def main_server() -> DatabaseServer:
    """Return the server of the global database. Its row is created at first use."""
    server, _ = DatabaseServer.objects.get_or_create(
        name=servers.MAIN, defaults={"host": displayed_host(str(settings.DATABASES["default"]["HOST"]))}
    )
    return server


def displayed_host(host: str | None) -> str:
    """Return what responses show as the host. A socket's directory is a path of the machine and is not shown."""
    return "localhost" if not host or host.startswith("/") else host


def server_with_room(name: str | None) -> DatabaseServer:
    """Return the server of that name, or the one with most room. Raises NoRoom, UnknownServer."""
    roomiest = roomiest_server(name)
    if roomiest is not None:
        return roomiest
    if name is None:
        raise NoRoom
    known = sorted(DatabaseServer.objects.values_list("name", flat=True))
    if name not in known:
        raise UnknownServer(f"No database server has the name {name!r}. Known servers: {', '.join(known)}.")
    raise NoRoom(
        f"The database server {name!r} is full or accepts no tenants. Run `change_database_server {name} --accepts "
        "--capacity N`, or name another server."
    )


def add_database_server(
    *, name: str, url: str, admin_url: str | None = None, capacity: int | None = None, replace: bool = False
) -> DatabaseServer:
    """Check that a server works, then store it with sealed URLs.

    `admin_url` bypasses a pooler that `url` goes through. With `replace` an existing server gets a new URL, which applies
    from the next request on; `admin_url` and `capacity` change only if given (an empty `admin_url` removes it). Raises
    ServerExists, ServerUnfit.
    """
    parameters = _parse(url)
    existing = DatabaseServer.objects.filter(name=name).first() if replace else None
    if admin_url is None and existing is not None and existing.admin_url_sealed is not None:
        # The stored admin URL stays, so it is checked too.
        connect = partial(servers.maintenance, existing)
    else:
        connect = partial(servers.connect_for_maintenance, _parse(admin_url or url))
    with _connect(connect) as raw:
        _check_fitness(raw)
    _connect(partial(servers.connect_for_maintenance, parameters)).close()
    with transaction.atomic():
        server = DatabaseServer.objects.select_for_update().filter(name=name).first()
        if server is None:
            server = DatabaseServer(name=name)
        elif not replace or server.name == servers.MAIN:
            raise ServerExists
        else:
            # Pooled connections to the old URL are not used again.
            server.revision += 1
        server.url_sealed = servers.seal_url(name, "url_sealed", url)
        server.host = displayed_host(parameters.get("host"))
        if admin_url is not None:
            server.admin_url_sealed = servers.seal_url(name, "admin_url_sealed", admin_url) if admin_url else None
        if capacity is not None:
            server.capacity = capacity
        server.save()
        action = "database_server.replaced" if replace else "database_server.added"
        record_for_platform(action, target=("database_server", server.pk))
    return server


def _parse(url: str) -> Parameters:
    try:
        return servers.parse_url(url)
    except psycopg.ProgrammingError as problem:
        raise ServerUnfit("The URL is invalid. Use the form postgresql://user:password@host:port/") from problem


def _connect(connect: Callable[[], Connection]) -> Connection:
    try:
        return connect()
    except psycopg.OperationalError as problem:
        # The driver's message shows hosts and users of the URL to its owner, but never the password.
        raise ServerUnfit(f"The connection failed: {problem}") from problem


def _check_fitness(raw: Connection) -> None:
    if raw.info.server_version < OLDEST_POSTGRESQL:
        raise ServerUnfit("The server must be PostgreSQL 15 or newer.")
    may = raw.execute("SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    if may is None or not may[0]:
        raise ServerUnfit("This login cannot create databases. Grant it with ALTER ROLE … CREATEDB.")


def change_database_server(*, name: str, capacity: int | None = None, accepts: bool | None = None) -> DatabaseServer:
    """Change how many tenants a server takes, or whether it accepts new ones. Existing tenants stay. Raises UnknownServer."""
    stated = {"capacity": capacity, "accepts_tenants": accepts}
    changes = {field: value for field, value in stated.items() if value is not None}
    with transaction.atomic():
        server = first_or(DatabaseServer.objects.select_for_update().filter(name=name), UnknownServer)
        if changes:
            for field, value in changes.items():
                setattr(server, field, value)
            server.save(update_fields=list(changes))
            record_for_platform("database_server.changed", target=("database_server", server.pk), details=changes)
    return server
