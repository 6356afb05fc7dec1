"""How to reach a database server: parameters for psycopg, sealed in the database, opened once per process."""

from functools import lru_cache
from typing import Any

import psycopg
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from identity_platform.crypto import SealContext, seal, unseal
from identity_platform.postgresql.base import MAIN_SERVER
from tenants import keys
from tenants.models import DatabaseServer

MAIN = MAIN_SERVER


def _of_settings(parts: dict[str, Any]) -> dict[str, Any]:
    found = {
        "user": parts["USER"],
        "password": parts["PASSWORD"],
        "host": parts["HOST"],
        "port": parts["PORT"],
        **parts["OPTIONS"],
    }
    # Django's own: the driver knows no such parameter.
    found.pop("server_side_binding", None)
    return {name: value for name, value in found.items() if value not in ("", None) or name == "prepare_threshold"}


def _context(server_name: str, column: str) -> SealContext:
    return SealContext(tenant="platform", table="tenants_databaseserver", column=column, row=server_name)


def seal_url(server_name: str, column: str, url: str) -> bytes:
    """Seal a connection URL for the row of that server."""
    return seal(url.encode(), data_key=keys.platform_key(), context=_context(server_name, column))


def parameters(server_id: int, revision: int, *, direct: bool = False) -> dict[str, Any]:
    """psycopg's connection parameters of a server, without a database name.

    `direct` is the connection for CREATE DATABASE and migrations, past any pooler. The revision is only here to keep
    parameters of an older revision from being used.
    """
    return {name: value for name, value in _all(server_id, revision, direct).items() if name != "dbname"}


_names: dict[int, str] = {}


def name_of(server_id: int) -> str | None:
    """The name of a server that this process has looked up before; asks no database, as it is for errors."""
    return _names.get(server_id)


# Bounded by the number of servers and their revisions, not of tenants.
@lru_cache(maxsize=256)
def _all(server_id: int, revision: int, direct: bool) -> dict[str, Any]:
    server = DatabaseServer.objects.get(pk=server_id)
    _names[server_id] = server.name
    sealed = (server.admin_url_sealed or server.url_sealed) if direct else server.url_sealed
    if sealed is None:
        parts = settings.DATABASE_ADMIN if direct else settings.DATABASES["default"]
        return _of_settings(parts) | {"dbname": parts["NAME"]}
    column = "admin_url_sealed" if direct and server.admin_url_sealed else "url_sealed"
    url = unseal(bytes(sealed), data_key=keys.platform_key(), context=_context(server.name, column)).decode()
    return of_url(url)


def of_url(url: str) -> dict[str, Any]:
    """psycopg's parameters of a connection URL; psycopg.ProgrammingError if it is none."""
    return {name: value for name, value in conninfo_to_dict(url).items() if value is not None}


def maintenance(server: DatabaseServer) -> "psycopg.Connection[Any]":
    """A direct connection in autocommit to the server's maintenance database, for CREATE and DROP DATABASE."""
    return connect_for_maintenance(_all(server.pk, server.revision, True))


def direct_to_global() -> "psycopg.Connection[Any]":
    """A direct connection in autocommit to the global database itself, for locks that live as long as it does."""
    return connect_for_maintenance(
        _of_settings(settings.DATABASE_ADMIN) | {"dbname": settings.DATABASES["default"]["NAME"]}
    )


def connect_for_maintenance(parts: dict[str, Any]) -> "psycopg.Connection[Any]":
    """The same from connection parameters; the maintenance database is the one they name, else `postgres`."""
    params: dict[str, Any] = {"dbname": "postgres", "connect_timeout": 5, "application_name": "identity-admin"} | parts
    params.pop("prepare_threshold", None)
    return psycopg.connect(**params, autocommit=True)
