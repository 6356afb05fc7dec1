"""System checks of the tenant settings and models."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import ProgrammingError
from psycopg import OperationalError

from tenants.database_servers import queries, servers
from tenants.entering.router import lives_in_tenant
from tenants.failure_reasons import why
from tenants.models import DatabaseServer


@register()
def one_transaction_owner(**_: object) -> list[CheckMessage]:
    """Reject ATOMIC_REQUESTS: it opens a transaction before the tenant is known, and rolls back failure counters."""
    return [
        Error(f"ATOMIC_REQUESTS must be off for the alias {alias!r}.", id="tenants.E001")
        for alias, options in settings.DATABASES.items()
        if options.get("ATOMIC_REQUESTS")
    ]


@register()
def no_relation_crosses(**_: object) -> list[CheckMessage]:
    """Reject foreign keys between tenant tables and global ones: they are in different databases."""
    return [
        Error(f"{model._meta.label}.{field.name} points into another database.", obj=model, id="tenants.E002")
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.get_fields()
        if field.is_relation
        and field.concrete
        and isinstance(field.related_model, type)
        and lives_in_tenant(model) != lives_in_tenant(field.related_model)
    ]


@register()
def base_url_is_an_origin(**_: object) -> list[CheckMessage]:
    """Reject a BASE_URL with more than scheme and host: all paths of the platform begin at the root of its host."""
    address = urlsplit(settings.BASE_URL)
    if f"{address.scheme}://{address.netloc}" == settings.BASE_URL and address.scheme in ("http", "https"):
        return []
    hint = "Give the platform a host of its own and set BASE_URL to its address, such as https://id.example.org."
    return [Error(f"BASE_URL must have scheme and host only, not {settings.BASE_URL!r}.", hint=hint, id="tenants.E006")]


@register(Tags.security, deploy=True)
def hosts_are_listed(**_: object) -> list[CheckMessage]:
    """Reject wildcards in ALLOWED_HOSTS: the console and the API would be on every host that is no tenant's domain."""
    wild = [host for host in settings.ALLOWED_HOSTS if host.startswith((".", "*"))]
    if not wild:
        return []
    message = (
        f"ALLOWED_HOSTS has wildcards ({', '.join(wild)}): the console and the API would also be on domains that tenants have "
        "given up or not verified yet."
    )
    hint = "List the platform's host names one by one. Sign-in domains of tenants are accepted without being listed."
    return [Error(message, hint=hint, id="tenants.E005")]


@register(Tags.database)
def budget_fits(*, databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """Check that every worker of all hosts can open the least that it needs on each database server.

    That is one connection to tenants' databases, and on the main server those to the global database. Leases bound the
    rest: a warning names servers on which the threads of all workers could not use one at the same time. Servers behind a
    pooler are skipped: the pooler limits their connections.
    """
    if not databases or "default" not in databases:
        return []
    workers = settings.PLATFORM_HOSTS * settings.WEB_WORKERS
    workers_on_hosts = f"{workers} workers on {settings.PLATFORM_HOSTS} hosts"
    messages: list[CheckMessage] = []
    for name, connect in _counted_servers():
        try:
            with connect() as raw:
                left = queries.free_for_platform(raw) - settings.RESERVED_CONNECTIONS
        except Exception as problem:
            messages.append(
                Warning(f"The connections of {name} could not be counted: {why(problem)}.", id="tenants.W004")
            )
            continue
        fixed = servers.planned_connections() if name == servers.MAIN else 0
        # What all threads can use at once. More are kept open only while there is plenty.
        peak = fixed + workers * min(settings.BASE_CONNECTION_BUDGET, settings.WEB_THREADS)
        reserve_note = f"{settings.RESERVED_CONNECTIONS} more are reserved for commands (RESERVED_CONNECTIONS)"
        if fixed + workers > left:
            messages.append(
                Error(
                    f"{workers_on_hosts} need at least {fixed + workers} connections to {name}, "
                    f"which allows {left}; {reserve_note}.",
                    hint="Raise max_connections, lower WEB_WORKERS or WEB_THREADS, or use PgBouncer.",
                    id="tenants.E003",
                )
            )
        elif peak > left:
            messages.append(
                Warning(
                    f"{workers_on_hosts} may use {peak} connections to {name} at once, which allows {left}; {reserve_note}. "
                    "They share what there is; a request that finds none left gets 503.",
                    hint="Raise max_connections, lower WEB_WORKERS or WEB_THREADS, or use PgBouncer.",
                    id="tenants.W005",
                )
            )
    return messages


@register(Tags.database)
def servers_allow_online_moves(*, databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """Warn of a database server that tenants cannot leave while they are in use. One server alone has nowhere to move them."""
    if not databases or "default" not in databases:
        return []
    messages: list[CheckMessage] = []
    # The table does not exist before the first migration.
    with suppress(ProgrammingError):
        registered = list(DatabaseServer.objects.filter(detached=False).order_by("name"))
        for server in registered if len(registered) > 1 else []:
            # `budget_fits` names servers that do not respond.
            with suppress(OperationalError), servers.maintenance(server) as raw:
                level = queries.wal_level(raw)
                if level != "logical":
                    messages.append(
                        Warning(
                            f"Tenants of {server.name} cannot be moved while they are in use: wal_level is {level}.",
                            hint="Set wal_level to logical and restart that server, or silence this check.",
                            id="tenants.W009",
                        )
                    )
    return messages


def _counted_servers() -> Iterator[tuple[str, Callable[[], servers.Connection]]]:
    if not settings.PGBOUNCER:
        yield servers.MAIN, servers.direct_to_global
    # The table does not exist before the first migration.
    with suppress(ProgrammingError):
        for server in DatabaseServer.objects.filter(admin_url_sealed=None).exclude(name=servers.MAIN).order_by("name"):
            yield server.name, partial(servers.maintenance, server)
