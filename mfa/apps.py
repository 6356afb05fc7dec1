"""Second factors: passkeys, TOTP with backup codes, SMS."""

from django.apps import AppConfig


class MfaConfig(AppConfig):
    name = "mfa"

    def ready(self) -> None:
        """Passkeys hang on a setting of the tenant, and factors on a user: the room above watches over both."""
        from mfa import checks  # noqa: F401  # registers the system check
        from mfa.factors import remove_unverified_factors
        from mfa.stepup.receivers import check_factor_proof
        from mfa.webauthn.relying_party import reject_rp_id_change
        from tenants.settings import check_changes_with
        from userflow.signals import address_taken_over, factor_proof

        check_changes_with(reject_rp_id_change)
        factor_proof.connect(check_factor_proof)
        address_taken_over.connect(remove_unverified_factors)
