from typing import ClassVar

from django.db import models

from identity_platform.restoring import AfterRestore, NoAuthority
from tenants.models import TenantModel


class Note(TenantModel):
    text = models.TextField()

    after_restore: ClassVar[AfterRestore] = NoAuthority("They are notes.")

    def __str__(self) -> str:
        return self.text
