"""Who the tenants are and where their databases live."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "tenants"

    def ready(self) -> None:
        from identity_platform.api.metrics import add_collector
        from tenants import checks, lookup, metrics  # noqa: F401  # importing `checks` registers the system checks

        lookup.cache_per_request()
        add_collector("platform", metrics.collect)
