"""Clients: the applications of a tenant, in the global database."""

import uuid

from django.db import models

from tenants.models import Tenant

PUBLIC, CONFIDENTIAL = "public", "confidential"


class Client(models.Model):
    """An application that signs end users in (public) or speaks for itself with a secret (confidential)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="clients")
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=16, choices=[(PUBLIC, PUBLIC), (CONFIDENTIAL, CONFIDENTIAL)], default=PUBLIC)
    active = models.BooleanField(default=True)
    is_default = models.BooleanField(default=False)
    tags: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, blank=True)
    scopes: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, blank=True)
    redirect_uris: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, blank=True)
    project_id = models.CharField(max_length=64, null=True, blank=True)
    owner_id = models.CharField(max_length=64, null=True, blank=True)
    self_registration = models.BooleanField(default=False)
    # SHA-256 of 256 random bits; the one before stays valid until `previous_secret_until`.
    secret_digest = models.BinaryField(null=True, editable=False)
    previous_secret_digest = models.BinaryField(null=True, editable=False)
    previous_secret_until = models.DateTimeField(null=True, editable=False)
    # Stands in the client's own tokens and is raised when it is switched off: they do not come back with it.
    generation = models.PositiveIntegerField(default=1, db_default=1, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant"], condition=models.Q(is_default=True), name="client_one_default_per_tenant"
            )
        ]
        indexes = [
            models.Index(fields=["tenant", "-created_at", "id"], name="client_newest_first"),
            models.Index(fields=["tenant", "project_id"], name="client_project"),
        ]

    def __str__(self) -> str:
        return self.name
