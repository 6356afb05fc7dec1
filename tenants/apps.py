"""Who the tenants are and where their databases live."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "tenants"

    def ready(self) -> None:
        from tenants import checks, lookup  # noqa: F401  # importing `checks` registers the system checks

        lookup.cache_per_request()
