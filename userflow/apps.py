"""People and the applications they use."""

from django.apps import AppConfig


class UserflowConfig(AppConfig):
    name = "userflow"
