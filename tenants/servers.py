"""How to reach a database server: parameters for psycopg, sealed in the database, opened once per process."""

from functools import lru_cache
from typing import Any

import psycopg
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from identity_platform.crypto import SealContext, seal, unseal
from tenants import keys
from tenants.models import DatabaseServer

MAIN = "main"


def _of_settings(parts: dict[str, Any]) -> dict[str, Any]:
    found = {
        "user": parts["USER"],
        "password": parts["PASSWORD"],
        "host": parts["HOST"],
        "port": parts["PORT"],
        **parts["OPTIONS"],
    }
    return {name: value for name, value in found.items() if value not in ("", None) or name == "prepare_threshold"}


def _context(server_name: str, column: str) -> SealContext:
    return SealContext(tenant="platform", table="tenants_databaseserver", column=column, row=server_name)


def seal_url(server_name: str, column: str, url: str) -> bytes:
    """Seal a connection URL for the row of that server."""
    return seal(url.encode(), data_key=keys.platform_key(), context=_context(server_name, column))


# Bounded by the number of servers and their revisions, not of tenants.
@lru_cache(maxsize=256)
def parameters(server_id: int, revision: int, *, direct: bool = False) -> dict[str, Any]:
    """psycopg's connection parameters of a server, without a database name.

    `direct` is the connection for CREATE DATABASE and migrations, past any pooler. The revision is only here to keep
    parameters of an older revision from being used.
    """
    server = DatabaseServer.objects.get(pk=server_id)
    sealed = (server.admin_url_sealed or server.url_sealed) if direct else server.url_sealed
    if sealed is None:
        return _of_settings(settings.DATABASE_ADMIN if direct else settings.DATABASES["default"])
    column = "admin_url_sealed" if direct and server.admin_url_sealed else "url_sealed"
    url = unseal(bytes(sealed), data_key=keys.platform_key(), context=_context(server.name, column)).decode()
    found: dict[str, Any] = {name: value for name, value in conninfo_to_dict(url).items() if value is not None}
    found.pop("dbname", None)
    return found


def maintenance(server: DatabaseServer) -> "psycopg.Connection[Any]":
    """A direct connection in autocommit to the server's maintenance database, for CREATE and DROP DATABASE."""
    params = dict(parameters(server.pk, server.revision, direct=True))
    params.pop("prepare_threshold", None)
    database = settings.DATABASE_ADMIN["NAME"] if server.url_sealed is None else "postgres"
    return psycopg.connect(**params, dbname=database, autocommit=True)
