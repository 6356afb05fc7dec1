"""External services of tenants and their credentials."""

from django.apps import AppConfig

from registry.api_part import API_PART


class RegistryConfig(AppConfig):
    name = "registry"
    api_part = API_PART

    def ready(self) -> None:
        from registry import consistency
        from tenants.consistency.findings import examinations

        examinations.register(consistency.examine)
