"""System checks: what must hold before the first request."""

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connection

from tenants.router import lives_in_tenant


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
    """The tenant connections that all workers may open must fit into the server's max_connections."""
    if not databases or "default" not in databases:
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('max_connections')::int")
        most = cursor.fetchone()[0]
    wanted = settings.WEB_WORKERS * (settings.TENANT_CONNECTION_BUDGET + settings.WEB_THREADS)
    if settings.PGBOUNCER or wanted <= most - 10:
        return []
    return [
        Error(
            f"{settings.WEB_WORKERS} workers may open {wanted} connections, the server takes {most}.",
            hint="Lower TENANT_CONNECTION_BUDGET or raise max_connections.",
            id="tenants.E003",
        )
    ]
