"""OpenID Connect: every tenant is an issuer of its own."""

from django.apps import AppConfig


class OpenidConfig(AppConfig):
    name = "openid"
