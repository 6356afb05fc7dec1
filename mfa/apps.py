"""Second factors: passkeys, TOTP with backup codes, SMS."""

from django.apps import AppConfig

from mfa.api_part import API_PART


class MfaConfig(AppConfig):
    name = "mfa"
    api_part = API_PART

    def ready(self) -> None:
        """Connect what depends on this app: passkeys depend on a setting of the tenant, factors on a user."""
        from mfa import (
            checks,  # noqa: F401  # registers the system check
            consistency,
        )
        from mfa.factors import remove_unverified_factors
        from mfa.stepup.actions import check_factor_proof
        from mfa.webauthn.relying_party import keep_rp_id_of_domain, reject_domain_change, reject_rp_id_change
        from tenants.consistency.findings import examinations
        from tenants.signals import sign_in_domain_changing, tenant_settings_changing
        from userflow.email.ownership import factor_removal
        from userflow.signals import sign_in_domain_lost
        from userflow.signin.proofs import factor_check

        examinations.register(consistency.examine)
        tenant_settings_changing.connect(reject_rp_id_change)
        sign_in_domain_changing.connect(reject_domain_change)
        sign_in_domain_lost.connect(keep_rp_id_of_domain)
        factor_check.register(check_factor_proof)
        factor_removal.register(remove_unverified_factors)
