"""The audit trail: one per tenant in its own database, one for the platform."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "identity_platform.audit"
    label = "audit"
