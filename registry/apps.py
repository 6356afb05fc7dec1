"""External services of tenants and their credentials."""

from django.apps import AppConfig


class RegistryConfig(AppConfig):
    name = "registry"

    def ready(self) -> None:
        from registry import consistency
        from tenants.signals import consistency_examined

        consistency_examined.connect(consistency.examine)
