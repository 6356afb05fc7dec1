"""Second factors: passkeys, TOTP with backup codes, SMS."""

from django.apps import AppConfig


class MfaConfig(AppConfig):
    name = "mfa"

    def ready(self) -> None:
        """Passkeys hang on a setting of the tenant: the room above watches over it."""
        from mfa import checks  # noqa: F401  # registers the system check
        from mfa.webauthn.relying_party import keep_id
        from tenants.settings import check_changes_with

        check_changes_with(keep_id)
