"""An app of a later release: one more table in every tenant database."""

from django.apps import AppConfig


class NewerReleaseConfig(AppConfig):
    name = "tests.tenants.newer_release"
    label = "newer_release"
