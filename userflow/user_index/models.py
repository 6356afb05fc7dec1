"""The index of the end users of all tenants, in the global database, and what waits for it in tenants' databases."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from identity_platform.restoring import AfterRestore, NoAuthority
from tenants.models import TenantModel


class IndexedEndUser(models.Model):
    """An end user of a tenant, by which the console finds a person whose tenant is unknown.

    It has ids and a keyed digest of the address, and no other data of the person. The tenant's own database decides who exists.
    """

    DIGEST_BYTES: ClassVar[int] = 16

    pk = models.CompositePrimaryKey("tenant_id", "user_id")
    tenant_id = models.UUIDField()
    # Unique within the tenant only: an import keeps the ids of another platform.
    user_id = models.UUIDField()
    digest = models.BinaryField(max_length=DIGEST_BYTES, help_text="Of the address (`user_index.entries.digest_of`).")

    class Meta:
        indexes = [
            models.Index(fields=["digest", "tenant_id"], name="indexed_end_user_address"),
            models.Index(fields=["user_id", "tenant_id"], name="indexed_end_user_id"),
        ]


class UnindexedEndUser(TenantModel):
    """An end user who was added or deleted or has got another address: triggers note it in the transaction of the change."""

    user_id = models.UUIDField()
    noted_at = models.DateTimeField(db_default=Now())

    after_restore: ClassVar[AfterRestore] = NoAuthority("The index is compared with the restored database.")
