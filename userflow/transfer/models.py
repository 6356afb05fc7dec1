"""Progress of end-user imports, in the tenant's own database: saved in the transaction of each batch."""

from django.db import models

from identity_platform.transfer.runs import ImportRun
from tenants.models import TenantModel


class EndUserImport(ImportRun, TenantModel):
    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["digest"], condition=models.Q(ended_at=None), name="end_user_import_one_at_a_time"
            )
        ]
        indexes = [models.Index(fields=["touched_at"], name="end_user_import_age")]
