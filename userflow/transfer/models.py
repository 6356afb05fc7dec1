"""How far imports of end users have come, in the tenant's own database: in the transaction of what they have done."""

from django.db import models

from identity_platform.transfer.runs import ImportRun
from tenants.models import TenantModel


class EndUserImport(ImportRun, TenantModel):
    """One import of a file of end users."""

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["digest"], condition=models.Q(ended_at=None), name="end_user_import_one_at_a_time"
            )
        ]
        indexes = [models.Index(fields=["touched_at"], name="end_user_import_age")]
