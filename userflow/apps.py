"""People and the applications they use."""

from django.apps import AppConfig


class UserflowConfig(AppConfig):
    name = "userflow"

    def ready(self) -> None:
        from tenants.provisioning import standard_furniture
        from userflow.clients.actions import furnish_with_default_client

        standard_furniture.append(furnish_with_default_client)
