"""External services of tenants and their credentials."""

from django.apps import AppConfig


class RegistryConfig(AppConfig):
    name = "registry"
