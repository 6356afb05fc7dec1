"""OpenID Connect: every tenant is an issuer of its own."""

from django.apps import AppConfig

from openid.api_part import API_PART


class OpenidConfig(AppConfig):
    name = "openid"
    api_part = API_PART

    def ready(self) -> None:
        from openid import consistency
        from openid.authorization.consents import delete_codes_of_client, end_sessions_without_consent
        from openid.device.codes import delete_approved_codes
        from openid.device.codes import delete_codes_of_client as delete_device_codes_of_client
        from tenants.consistency.findings import examinations
        from userflow.signals import client_needs_consent, client_sessions_ended, other_sessions_ended

        examinations.register(consistency.examine)
        client_sessions_ended.connect(delete_codes_of_client)
        client_sessions_ended.connect(delete_device_codes_of_client)
        client_needs_consent.connect(end_sessions_without_consent)
        other_sessions_ended.connect(delete_approved_codes)
