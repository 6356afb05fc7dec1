"""System checks of the tenant settings and models."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import ProgrammingError

from tenants import servers
from tenants.models import DatabaseServer
from tenants.router import lives_in_tenant
from tenants.schema import why

# Connections reserved for tenant_worker, deliver_events and commands.
COMMAND_SLOTS = 20
# Without the slots reserved for superusers and for roles with pg_use_reserved_connections (PostgreSQL 16).
_FREE_FOR_PLATFORM = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
  - coalesce(current_setting('reserved_connections', true), '0')::int
"""


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
    """Check that the connections of all hosts fit into each database server's max_connections.

    Each worker can open its whole tenant budget on one server, and one global connection per thread on the main server.
    Servers behind a pooler are skipped: the pooler limits their connections.
    """
    if not databases or "default" not in databases:
        return []
    workers = settings.PLATFORM_HOSTS * settings.WEB_WORKERS
    messages: list[CheckMessage] = []
    for name, connect in _counted_servers():
        wanted = workers * (settings.TENANT_CONNECTION_BUDGET + (settings.WEB_THREADS if name == servers.MAIN else 0))
        try:
            with connect() as raw:
                left = raw.execute(_FREE_FOR_PLATFORM).fetchall()[0][0] - COMMAND_SLOTS
        except Exception as problem:
            messages.append(
                Warning(f"The connections of {name} could not be counted: {why(problem)}.", id="tenants.W004")
            )
            continue
        if wanted > left:
            messages.append(
                Error(
                    f"{workers} workers on {settings.PLATFORM_HOSTS} hosts may open {wanted} connections to {name}, "
                    f"which allows {left}; {COMMAND_SLOTS} more are reserved for the worker, the deliverer and commands.",
                    hint="Lower TENANT_CONNECTION_BUDGET, raise max_connections, or use PgBouncer.",
                    id="tenants.E003",
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
