"""Who the tenants are and where their databases live."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "tenants"

    def ready(self) -> None:
        from tenants import checks, routes  # noqa: F401  # registers the system checks

        routes.forget_at_request_ends()
