"""External services of tenants and their credentials."""

from django.apps import AppConfig

from registry.api_part import API_PART


class RegistryConfig(AppConfig):
    name = "registry"
    api_part = API_PART

    def ready(self) -> None:
        from registry import consistency
        from tenants.signals import consistency_examined

        consistency_examined.connect(consistency.examine)
