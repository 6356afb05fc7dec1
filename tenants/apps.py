"""Who the tenants are and where their databases live."""

from typing import Any

from django.apps import AppConfig

from identity_platform.api.app_parts import ApiPart


class TenantsConfig(AppConfig):
    name = "tenants"
    api_part = ApiPart(log_areas=frozenset({"tenants"}))

    def ready(self) -> None:
        from django.db.backends.signals import connection_created

        from identity_platform.api.metrics import add_collector
        from identity_platform.signals import worker_starting
        from tenants import checks, metrics  # noqa: F401  # importing registers the checks
        from tenants.database_servers import transport  # noqa: F401  # importing registers the checks
        from tenants.entering import lookup
        from tenants.journals import deliveries, revocations
        from tenants.records import reconciling
        from tenants.signals import copies_needed, rows_noted

        deliveries.deliveries.register(revocations.deliver)
        rows_noted.connect(deliveries.deliver_noted)
        copies_needed.connect(reconciling.apply_lagging)
        lookup.cache_per_request()
        add_collector("platform", metrics.collect)
        worker_starting.connect(_lease_connections)
        connection_created.connect(_compare_with_fence)


def _compare_with_fence(*, connection: Any, **_: object) -> None:
    from tenants.database_servers import fences

    if connection.alias == "default":
        fences.note_new_connection(connection.connection)


def _lease_connections(**_: object) -> None:
    from django.conf import settings

    from tenants.backend.base import LEASES
    from tenants.database_servers import servers

    LEASES.start(global_connections=servers.global_connections(settings.WEB_THREADS))
