"""Which database servers there are, and which of them takes the next tenant."""

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
from django.conf import settings
from django.db import transaction

from identity_platform.audit.writer import record_for_platform
from tenants import servers
from tenants.errors import NoRoom, ServerExists, ServerUnfit, UnknownServer
from tenants.models import DatabaseServer
from tenants.states import State

# CREATE DATABASE … STRATEGY wal_log came with it.
OLDEST_POSTGRESQL = 150_000


# Deleted tenants leave a row behind and no database. Every new tenant asks this: counted beside the servers, not joined to
# them, and without the time that the ORM takes to say it.
_ROOMIEST = """
SELECT s.*, s.capacity - (SELECT count(*) FROM tenants_tenantdatabase d
  WHERE d.server_id = s.id AND d.status <> %(deleted)s::text) AS room
FROM tenants_databaseserver s WHERE s.accepts_tenants AND (%(name)s::text IS NULL OR s.name = %(name)s::text)
ORDER BY room DESC, s.id LIMIT 1
"""


def main_server() -> DatabaseServer:
    """The server of the global database; its row is made at first use."""
    server, _ = DatabaseServer.objects.get_or_create(
        name=servers.MAIN, defaults={"host": shown_host(settings.DATABASES["default"]["HOST"])}
    )
    return server


def shown_host(host: str | None) -> str:
    """What answers show as the host: a socket's directory is a path of the machine, so its name is shown instead."""
    return "localhost" if not host or host.startswith("/") else host


def server_with_room(name: str | None) -> DatabaseServer:
    """The server of that name, or the one with most room; NoRoom if it is full or takes none, UnknownServer."""
    for roomiest in DatabaseServer.objects.raw(_ROOMIEST, {"deleted": State.DELETED.value, "name": name}):
        if roomiest.room > 0:  # type: ignore[attr-defined]  # a column of the statement
            return roomiest
    if name is None:
        raise NoRoom
    known = sorted(DatabaseServer.objects.values_list("name", flat=True))
    if name not in known:
        raise UnknownServer(f"No database server is called {name!r}. There are: {', '.join(known)}.")
    raise NoRoom(
        f"The database server {name!r} takes no more tenants: `change_database_server {name} --accepts --capacity N` "
        "lets it, or name another one."
    )


def add_database_server(
    *, name: str, url: str, admin_url: str | None = None, capacity: int | None = None, replace: bool = False
) -> DatabaseServer:
    """Add a server that takes tenants, once it has been seen to work; its URLs are sealed.

    `admin_url` goes straight to the server where `url` leads through a pooler. With `replace` a known server gets a new
    URL, which counts from the next request on; `admin_url` and `capacity` change only if they are given (an empty
    `admin_url` removes it). Raises ServerExists, ServerUnfit.
    """
    parts = _parts(url)
    known = DatabaseServer.objects.filter(name=name).first() if replace else None
    if admin_url is None and known is not None and known.admin_url_sealed is not None:
        # The old one stays, so it must still lead to a server that fits.
        direct = partial(servers.maintenance, known)
    else:
        direct = partial(servers.connect_for_maintenance, _parts(admin_url or url))
    with _reached(direct) as raw:
        _check_fitness(raw)
    _reached(partial(servers.connect_for_maintenance, parts)).close()
    sealed: dict[str, Any] = {
        "url_sealed": servers.seal_url(name, "url_sealed", url),
        "host": shown_host(parts.get("host")),
    }
    if admin_url is not None:
        sealed["admin_url_sealed"] = servers.seal_url(name, "admin_url_sealed", admin_url) if admin_url else None
    if capacity is not None:
        sealed["capacity"] = capacity
    with transaction.atomic():
        server = DatabaseServer.objects.select_for_update().filter(name=name).first()
        if server is None:
            server = DatabaseServer.objects.create(name=name, **sealed)
        elif not replace or server.name == servers.MAIN:
            raise ServerExists
        else:
            for column, value in sealed.items():
                setattr(server, column, value)
            # Connections to the old place are not used again.
            server.revision += 1
            server.save()
        action = "database_server.replaced" if replace else "database_server.added"
        record_for_platform(action, target=("database_server", server.pk))
    return server


def _parts(url: str) -> dict[str, Any]:
    try:
        return servers.of_url(url)
    except psycopg.ProgrammingError as problem:
        raise ServerUnfit("This is no PostgreSQL URL: postgresql://user:password@host:port/") from problem


def _reached(connect: Callable[[], "psycopg.Connection[Any]"]) -> "psycopg.Connection[Any]":
    try:
        return connect()
    except psycopg.OperationalError as problem:
        # The driver's message names hosts and users of the URL, which is what its owner needs; never the password.
        raise ServerUnfit(f"The server does not let us in: {problem}") from problem


def _check_fitness(raw: "psycopg.Connection[Any]") -> None:
    if raw.info.server_version < OLDEST_POSTGRESQL:
        raise ServerUnfit("The server must be PostgreSQL 15 or newer.")
    may = raw.execute("SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    if may is None or not may[0]:
        raise ServerUnfit("This login may not make databases: ALTER ROLE … CREATEDB.")


def change_database_server(*, name: str, capacity: int | None = None, accepts: bool | None = None) -> DatabaseServer:
    """Change how many tenants a server takes, or whether it takes new ones; those it has stay. Raises
    UnknownServer.
    """
    changes: dict[str, Any] = {}
    if capacity is not None:
        changes["capacity"] = capacity
    if accepts is not None:
        changes["accepts_tenants"] = accepts
    server = DatabaseServer.objects.filter(name=name).first()
    if server is None:
        raise UnknownServer
    with transaction.atomic():
        if changes:
            DatabaseServer.objects.filter(pk=server.pk).update(**changes)
            record_for_platform("database_server.changed", target=("database_server", server.pk), details=changes)
    server.refresh_from_db()
    return server
