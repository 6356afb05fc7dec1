"""End users: the people of one tenant, in that tenant's own database."""

import uuid
from typing import Any, ClassVar

from django.db import models

from tenants.models import TenantModel


class EndUser(TenantModel):
    """A person of the tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.CharField(max_length=254)
    # Lower-case form, unique: PostgreSQL's upper() folds letters that lower() keeps apart (security.md section 1).
    email_key = models.CharField(max_length=254, unique=True)
    name = models.CharField(max_length=255, blank=True, default="")
    active = models.BooleanField(default=True)
    provider = models.CharField(max_length=63, default="local")
    client_id = models.UUIDField(null=True)
    password = models.CharField(max_length=512, blank=True, default="")
    metadata: "models.JSONField[dict[str, Any], dict[str, Any]]" = models.JSONField(default=dict)
    mfa_methods: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    email_verified_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    last_login = models.DateTimeField(null=True)
    # Registered without the permission `endusers:write`, so nothing says yet that the address is the registrant's own.
    self_registered = models.BooleanField(default=False, db_default=False)

    # An unused registration; see `userflow.endusers.yielding`. One that an admin has deactivated stays.
    YIELDS: ClassVar[models.Q] = models.Q(self_registered=True, active=True, email_verified_at=None, last_login=None)

    class Meta:
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="end_user_newest_first"),
            models.Index(fields=["active", "-created_at", "-id"], name="end_user_active"),
            models.Index(fields=["client_id", "-created_at", "-id"], name="end_user_client"),
            models.Index(fields=["provider", "-created_at", "-id"], name="end_user_provider"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class EndUserCount(TenantModel):
    """How many end users of a kind the tenant has: the sum over its rows, kept by triggers and never written by this code.

    Of each kind there are as many rows as transactions have ever added or removed such people at the same moment: each
    takes one that nobody holds, so that registrations, and an import that lasts minutes, never wait for each other.
    """

    users = models.BigIntegerField()
    active = models.BooleanField()
    client_id = models.UUIDField(null=True)
    provider = models.CharField(max_length=63)

    class Meta:
        indexes = [models.Index(fields=["provider", "active", "client_id"], name="end_user_count_kind")]

    def __str__(self) -> str:
        return str(self.users)
