"""Progress of end-user imports, in the tenant's own database: saved in the transaction of each batch."""

from typing import ClassVar

from django.db import models

from identity_platform.restoring import AfterRestore, NoAuthority
from identity_platform.transfer.runs import ImportRun
from tenants.models import TenantModel


class EndUserImport(ImportRun, TenantModel):
    after_restore: ClassVar[AfterRestore] = NoAuthority(
        "They say how far an import is; its caller needs the permission again."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["digest"], condition=models.Q(ended_at=None), name="end_user_import_one_at_a_time"
            )
        ]
        indexes = [models.Index(fields=["touched_at"], name="end_user_import_age")]
