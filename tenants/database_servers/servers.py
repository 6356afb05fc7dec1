"""How to reach a database server: psycopg parameters, sealed in the database, opened once per process."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Final

import psycopg
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from psycopg.conninfo import conninfo_to_dict

from identity_platform import shared_facts
from identity_platform.crypto import SealContext, seal, unseal
from identity_platform.postgresql.base import MAIN_SERVER
from identity_platform.postgresql.hosts import with_primary
from tenants import keys
from tenants.errors import ServerDetached
from tenants.models import DatabaseServer

MAIN = MAIN_SERVER
Connection = psycopg.Connection[tuple[Any, ...]]
# psycopg's keyword arguments: strings and numbers.
Parameters = dict[str, Any]

# Connections of one `tenant_worker` to the global database: four of its queue, one of each of its eight tasks at a time,
# twelve of threads that tasks start, one of its leases.
TENANT_WORKER_CONNECTIONS = 25
# Connections of one `tenant_worker` to the tenants' databases of one server, and how long a task waits for one: requests
# need the others.
BACKGROUND_CONNECTIONS, BACKGROUND_WAIT_SECONDS = 4, 60.0
# A function of the number of servers and their revisions, not of tenants.
_MOST_CACHED = 256
_names: dict[int, str] = {}
_URLS: Final = ("url_sealed", "admin_url_sealed")
_poolers: set[tuple[int, int]] = set()


def _of_settings(database: Mapping[str, Any]) -> Parameters:
    connection_parameters = {
        "user": database["USER"],
        "password": database["PASSWORD"],
        "host": database["HOST"],
        "port": database["PORT"],
        **database["OPTIONS"],
    }
    # An option of Django, unknown to the driver.
    connection_parameters.pop("server_side_binding", None)
    return {
        name: value
        for name, value in connection_parameters.items()
        if value not in ("", None) or name == "prepare_threshold"
    }


def _context(server_name: str, column: str) -> SealContext:
    return SealContext(tenant="platform", table="tenants_databaseserver", column=column, row=server_name)


def seal_url(server_name: str, column: str, url: str) -> bytes:
    """Seal a connection URL for the row of that server."""
    return seal(url.encode(), data_key=keys.platform_key(), context=_context(server_name, column))


def parameters(server_id: int, revision: int, *, direct: bool = False) -> Parameters:
    """Return psycopg's parameters of a server, without a database name.

    `direct` is the connection for CREATE DATABASE and migrations, past any pooler. `revision` keys the cache, so a changed
    URL applies at once.
    """
    return {
        name: value for name, value in _unsealed_parameters(server_id, revision, direct).items() if name != "dbname"
    }


def is_counted(server_id: int, revision: int) -> bool:
    """Return whether the platform counts its connections to a server. Behind a pooler, the pooler limits them."""
    _unsealed_parameters(server_id, revision, False)
    return (server_id, revision) not in _poolers


def name_of(server_id: int) -> str | None:
    """Return the name of a server that this process has connected to. Never queries: error handling calls it."""
    return _names.get(server_id)


@lru_cache(maxsize=_MOST_CACHED)
def _unsealed_parameters(server_id: int, revision: int, direct: bool) -> Parameters:
    server = _stored(server_id, revision)
    _names[server_id] = server.name
    if server.detached:
        raise ServerDetached
    if server.admin_url_sealed is not None or (server.url_sealed is None and settings.PGBOUNCER):
        _poolers.add((server_id, revision))
    sealed = (server.admin_url_sealed or server.url_sealed) if direct else server.url_sealed
    if sealed is None:
        database = settings.DATABASE_ADMIN if direct else settings.DATABASES["default"]
        return _of_settings(database) | {"dbname": database["NAME"]}
    column = "admin_url_sealed" if direct and server.admin_url_sealed else "url_sealed"
    return parse_url(
        unseal(bytes(sealed), data_key=keys.platform_key(), context=_context(server.name, column)).decode()
    )


def _stored(server_id: int, revision: int) -> DatabaseServer:
    """Return the server, and share it with processes that start while the global database is away; its URLs are sealed."""
    name = f"server:{server_id}"
    try:
        server = DatabaseServer.objects.get(pk=server_id)
    except (OperationalError, InterfaceError):
        connection.close_if_unusable_or_obsolete()
        shared = shared_facts.read(name, partial(_from_fact, server_id))
        if shared is None or shared.revision < revision:
            raise
        return shared
    sealed_urls = {column: getattr(server, column) for column in _URLS}
    texts = {
        column: b64encode(sealed).decode() if sealed is not None else None for column, sealed in sealed_urls.items()
    }
    shared_facts.write(name, {"name": server.name, "revision": server.revision, "detached": server.detached, **texts})
    return server


def _from_fact(server_id: int, shared: dict[str, Any]) -> DatabaseServer:
    urls = {column: b64decode(shared[column]) if shared[column] else None for column in _URLS}
    revision, detached = int(shared["revision"]), bool(shared["detached"])
    return DatabaseServer(pk=server_id, name=str(shared["name"]), revision=revision, detached=detached, **urls)


def parse_url(url: str) -> Parameters:
    """Return psycopg's parameters of a connection URL. Raises psycopg.ProgrammingError if it is invalid."""
    return with_primary({name: value for name, value in conninfo_to_dict(url).items() if value is not None})


def maintenance(server: DatabaseServer) -> Connection:
    """Open a direct autocommit connection to the server's maintenance database, for CREATE and DROP DATABASE."""
    return connect_for_maintenance(_unsealed_parameters(server.pk, server.revision, True))


def direct_to_global() -> Connection:
    """Open a direct autocommit connection to the global database, for locks that last as long as the connection."""
    return connect_for_maintenance(
        _of_settings(settings.DATABASE_ADMIN) | {"dbname": settings.DATABASES["default"]["NAME"]}
    )


def connect_for_maintenance(parameters: Parameters) -> Connection:
    """Open a direct autocommit connection. The database is the one in the parameters, else `postgres`."""
    maintenance_parameters: Parameters = {
        "dbname": "postgres",
        "connect_timeout": 5,
        "application_name": "identity-admin",
    } | parameters
    maintenance_parameters.pop("prepare_threshold", None)
    return psycopg.connect(**maintenance_parameters, autocommit=True)


def global_connections(threads: int) -> int:
    """Return how many connections to the global database a worker opens: its threads, two that send mails, its leases."""
    return threads + 3


def planned_connections() -> int:
    """Return how many connections to the global database the workers of all planned hosts open."""
    return settings.PLATFORM_HOSTS * settings.WEB_WORKERS * global_connections(settings.WEB_THREADS)
