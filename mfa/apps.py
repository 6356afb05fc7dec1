"""Second factors: passkeys, TOTP with backup codes, SMS."""

from django.apps import AppConfig


class MfaConfig(AppConfig):
    name = "mfa"
