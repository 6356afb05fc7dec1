"""People and the applications they use."""

from django.apps import AppConfig

from userflow.api_part import API_PART


class UserflowConfig(AppConfig):
    name = "userflow"
    api_part = API_PART

    def ready(self) -> None:
        from identity_platform.signals import worker_resting
        from tenants.consistency.findings import comparisons, examinations
        from tenants.journals.deliveries import deliveries
        from tenants.records.reconciling import projections
        from tenants.signals import (
            tenant_created,
            tenant_forgotten,
            tenant_migrated,
            tenant_restored,
            tenant_resuming,
            tenant_settings_changing,
        )
        from userflow import consistency
        from userflow.accounts.client_records import CLIENTS
        from userflow.accounts.models import end_user_erasing
        from userflow.clients.actions import create_default_client
        from userflow.credentials import checks  # noqa: F401  # registers the system check
        from userflow.directory.people import keep_admins_decision
        from userflow.domains.recording import find_unrecorded
        from userflow.invitations.queries import delete_invitations_of
        from userflow.mail_delivery.background import send_behind_response
        from userflow.sessions import client_uses
        from userflow.sessions.missing_keys import create_missing_keys
        from userflow.signals import end_user_activity_set, mail_queued
        from userflow.signin.remembered_browsers import forget_devices_of_tenant
        from userflow.user_index import entries
        from userflow.user_index.actions import follow_restore
        from userflow.webhooks.logout_tokens import end_sessions_before_resuming

        worker_resting.connect(client_uses.store)
        examinations.register(consistency.examine)
        comparisons.register(find_unrecorded)
        projections.register(lambda: CLIENTS)
        deliveries.register(entries.deliver)
        tenant_created.connect(create_default_client)
        tenant_forgotten.connect(entries.remove_tenant)
        tenant_migrated.connect(create_missing_keys)
        tenant_restored.connect(create_missing_keys)
        tenant_restored.connect(follow_restore)
        tenant_resuming.connect(end_sessions_before_resuming)
        tenant_settings_changing.connect(forget_devices_of_tenant)
        end_user_activity_set.connect(keep_admins_decision)
        end_user_erasing.register(delete_invitations_of)
        mail_queued.connect(send_behind_response)
