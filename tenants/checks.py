"""System checks: what must hold before the first request."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import ProgrammingError

from tenants import servers
from tenants.models import DatabaseServer
from tenants.router import lives_in_tenant
from tenants.schema import why

# Connections that requests must leave to tenant_worker, deliver_events and the commands of an operator.
COMMAND_SLOTS = 20
# Those of superusers and of roles with pg_use_reserved_connections (PostgreSQL 16) are not ours.
_FREE_FOR_PLATFORM = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
  - coalesce(current_setting('reserved_connections', true), '0')::int
"""


@register()
def one_transaction_owner(**_: Any) -> list[CheckMessage]:
    """ATOMIC_REQUESTS would open a tenant transaction before a tenant is known and roll failure counters back."""
    return [
        Error(f"ATOMIC_REQUESTS must stay off for the alias {alias!r}.", id="tenants.E001")
        for alias, options in settings.DATABASES.items()
        if options.get("ATOMIC_REQUESTS")
    ]


@register()
def no_relation_crosses(**_: Any) -> list[CheckMessage]:
    """A foreign key between a tenant table and a global one cannot exist: they are in different databases."""
    return [
        Error(f"{model._meta.label}.{field.name} points into another database.", obj=model, id="tenants.E002")
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.get_fields()
        if field.is_relation
        and field.concrete
        and isinstance(field.related_model, type)
        and lives_in_tenant(model) != lives_in_tenant(field.related_model)
    ]


@register(Tags.database)
def budget_fits(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check that the connections of all hosts fit into each database server's max_connections.

    Every worker may open its whole tenant budget on one server; on the server of the global database each of its
    threads has a connection as well. A server behind a pooler is left out: the pooler bounds its connections.
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
            messages.append(Warning(f"The connections of {name} were not counted: {why(problem)}.", id="tenants.W004"))
            continue
        if wanted > left:
            messages.append(
                Error(
                    f"{workers} workers on {settings.PLATFORM_HOSTS} hosts may open {wanted} connections to {name}, "
                    f"which has {left} for them; {COMMAND_SLOTS} more are kept for the worker, the deliverer and commands.",
                    hint="Lower TENANT_CONNECTION_BUDGET, raise max_connections, or use PgBouncer.",
                    id="tenants.E003",
                )
            )
    return messages


def _counted_servers() -> Iterator[tuple[str, Callable[[], "psycopg.Connection[Any]"]]]:
    if not settings.PGBOUNCER:
        yield servers.MAIN, servers.direct_to_global
    # Before the first migration there are no others.
    with suppress(ProgrammingError):
        for server in DatabaseServer.objects.filter(admin_url_sealed=None).exclude(name=servers.MAIN).order_by("name"):
            yield server.name, partial(servers.maintenance, server)
