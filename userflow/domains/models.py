"""Domains of a tenant, in its own database. Which are verified is in the global one (`tenants.domain_claims`)."""

import uuid
from datetime import datetime
from typing import ClassVar

from django.db import models

from tenants.models import TenantModel


class TenantDomain(TenantModel):
    """A domain that an admin of the tenant has entered, with the value that its TXT record must have."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    domain = models.CharField(max_length=253, unique=True)
    token = models.CharField(max_length=64)
    # When the record was last looked up with a result, and since when it is gone.
    checked_at = models.DateTimeField(null=True)
    lost_since = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[models.Manager["TenantDomain"]]

    def __str__(self) -> str:
        return self.domain

    @classmethod
    def close_all(cls, moment: datetime) -> None:
        """After a restore the time without a record starts from zero: the backup does not know what was found since."""
        cls._default_manager.filter(lost_since__isnull=False).update(lost_since=None)
