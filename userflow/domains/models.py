"""Domains of a tenant, in its own database. Which are verified is in the global one (`tenants.addresses.domain_claims`)."""

import uuid
from typing import ClassVar

from django.db import models

from identity_platform.restoring import AfterRestore, NoAuthority
from tenants.models import TenantModel


class TenantDomain(TenantModel):
    """A domain that an admin of the tenant has entered, with the value that its TXT record must have."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    domain = models.CharField(max_length=253, unique=True)
    token = models.CharField(max_length=64)
    # What the audit log and the webhooks of the tenant know of the claim (`userflow.domains.recording`): that it is verified,
    # its record is lost, the pages are there or (False) were there.
    checked_at = models.DateTimeField(null=True)
    lost_since = models.DateTimeField(null=True)
    sign_in = models.BooleanField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[models.Manager["TenantDomain"]]
    after_restore: ClassVar[AfterRestore] = NoAuthority("Which are verified is in the global database.")

    def __str__(self) -> str:
        return self.domain
