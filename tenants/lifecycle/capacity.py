"""The database servers, and which of them takes the next tenant."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import psycopg
from django.conf import settings
from django.db import transaction

from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql.row_errors import first_or
from identity_platform.row_checks import RowCheck, no_check
from tenants.database_servers import fence_counters, fences, queries, servers
from tenants.database_servers.servers import Connection, Parameters
from tenants.errors import NoRoom, ServerExists, ServerUnfit, UnknownServer, WrongRegion
from tenants.lifecycle.queries import roomiest_server
from tenants.models import DatabaseServer, TenantDatabase
from tenants.states import State

# The first release with CREATE DATABASE … STRATEGY wal_log.
OLDEST_POSTGRESQL = 150_000
_LABEL = re.compile("[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


def main_server() -> DatabaseServer:
    """Return the server of the global database. Its row is created at first use."""
    server, _ = DatabaseServer.objects.get_or_create(
        name=servers.MAIN, defaults={"host": displayed_host(str(settings.DATABASES["default"]["HOST"]))}
    )
    return server


def displayed_host(host: str | None) -> str:
    """Return what responses show as the host. A socket's directory is a path of the machine and is not shown."""
    return "localhost" if not host or host.startswith("/") else host


def server_with_room(name: str | None, region: str | None = None, labels: Sequence[str] = ()) -> DatabaseServer:
    """Return the server of that name, or the one with most room; of those with the region and all labels that are stated.

    Raises NoRoom, UnknownServer, WrongRegion.
    """
    roomiest = roomiest_server(name, region, labels)
    if roomiest is not None:
        return roomiest
    if name is None:
        which = (f" in the region {region}" if region else "") + (f" with {', '.join(labels)}" if labels else "")
        raise NoRoom(
            f"No database server{which} has room for another tenant. Add one, or raise its capacity." if which else None
        )
    known = {server.name: server for server in DatabaseServer.objects.order_by("name")}
    if name not in known:
        raise UnknownServer(f"No database server has the name {name!r}. Known servers: {', '.join(known)}.")
    check_region(known[name], region)
    if lacks := set(labels) - set(known[name].labels):
        raise NoRoom(f"The database server {name!r} does not have the label {', '.join(sorted(lacks))}.")
    raise NoRoom(
        f"The database server {name!r} is full or accepts no tenants. Run `change_database_server {name} --accepts "
        "--capacity N`, or name another server."
    )


def region_of(tenant_settings: Mapping[str, object]) -> str | None:
    """Return the region that a tenant's settings bind it to, if any."""
    region = tenant_settings.get("region")
    return str(region) if region else None


def labels_in(text: str) -> list[str]:
    """Return the labels of a list with commas, none of an empty text. Raises ValueError."""
    labels = [label.strip() for label in text.split(",")] if text.strip() else []
    if any(_LABEL.fullmatch(label) is None for label in labels):
        raise ValueError
    return labels


def check_region(server: DatabaseServer, region: str | None) -> None:
    """Raise WrongRegion if a tenant that is bound to this region may not be on the server."""
    if region and server.region != region:
        where = f"in the region {server.region}" if server.region else "in no region that the platform knows"
        raise WrongRegion(
            f"The tenant is bound to the region {region}, and the database server {server.name} is {where}."
        )


def add_database_server(
    *,
    name: str,
    url: str,
    admin_url: str | None = None,
    capacity: int | None = None,
    region: str | None = None,
    labels: Sequence[str] | None = None,
    replace: bool = False,
) -> DatabaseServer:
    """Check that a server works, then store it with sealed URLs.

    `admin_url` bypasses a pooler that `url` goes through. With `replace` an existing server gets a new URL, which applies
    from the next request on; `admin_url`, `capacity`, `region` and `labels` change only if given (an empty `admin_url`
    removes it).
    Raises ServerExists, ServerUnfit, WrongRegion.
    """
    parameters = _parse(url)
    existing = DatabaseServer.objects.filter(name=name).first() if replace else None
    if admin_url is None and existing is not None and existing.admin_url_sealed is not None:
        # The stored admin URL stays, so it is checked too.
        connect = partial(servers.maintenance, existing)
    else:
        connect = partial(servers.connect_for_maintenance, _parse(admin_url or url))
    fences.require()
    with _connect(connect) as raw:
        _check_fitness(raw)
        fence_counters.reject_foreign(raw, name)
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
            # It may be another machine.
            server.connection_limit = None
        server.url_sealed = servers.seal_url(name, "url_sealed", url)
        server.detached = False
        server.host = displayed_host(parameters.get("host"))
        if admin_url is not None:
            server.admin_url_sealed = servers.seal_url(name, "admin_url_sealed", admin_url) if admin_url else None
        if capacity is not None:
            server.capacity = capacity
        if region is not None:
            _set_region(server, region)
        if labels is not None:
            server.labels = sorted(set(labels))
        server.save()
        action = "database_server.replaced" if replace else "database_server.added"
        record_for_platform(action, target=("database_server", server.pk))
    try:
        fence_counters.enroll(server)
    except psycopg.errors.InsufficientPrivilege as problem:
        if existing is None:
            server.delete()
        raise ServerUnfit(
            f"The login of {name} may not write the table server_mark in the database {fences.database_of_marks()}: grant it "
            "the rights of the login that has created it."
        ) from problem
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
    if not queries.may_create_databases(raw):
        raise ServerUnfit("This login cannot create databases. Grant it with ALTER ROLE … CREATEDB.")


def _set_region(server: DatabaseServer, region: str) -> None:
    """Set the region, in the caller's transaction, which has locked the server's row. Raises WrongRegion."""
    bound = TenantDatabase.objects.filter(server_id=server.pk, tenant__settings__region__isnull=False)
    elsewhere = bound.exclude(tenant__settings__region=region).exclude(status=State.DELETED)
    if server.pk is not None and (first := elsewhere.select_related("tenant").first()) is not None:
        raise WrongRegion(
            f"{first.tenant.slug}, which is on {server.name}, is bound to the region {first.tenant.settings['region']}. "
            "Move it first."
        )
    server.region = region


def change_database_server(
    *,
    name: str,
    capacity: int | None = None,
    accepts: bool | None = None,
    region: str | None = None,
    labels: Sequence[str] | None = None,
    check: RowCheck = no_check,
) -> DatabaseServer:
    """Change how many tenants a server takes, whether it accepts new ones, its region or labels. Existing tenants stay.

    Raises UnknownServer, WrongRegion (a tenant on it is bound to another region).
    """
    arguments: dict[str, object] = {"capacity": capacity, "accepts_tenants": accepts, "region": region}
    if labels is not None:
        arguments["labels"] = sorted(set(labels))
    changes: dict[str, object] = {field: value for field, value in arguments.items() if value is not None}
    with transaction.atomic():
        server = first_or(DatabaseServer.objects.select_for_update().filter(name=name), UnknownServer)
        check()
        if changes:
            if region is not None:
                _set_region(server, region)
            for field, value in changes.items():
                setattr(server, field, value)
            server.save(update_fields=list(changes))
            record_for_platform("database_server.changed", target=("database_server", server.pk), details=changes)
    return server
