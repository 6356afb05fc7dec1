"""Who the tenants are and where their databases live."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "tenants"

    def ready(self) -> None:
        from tenants import lookup

        lookup.forget_at_request_ends()
