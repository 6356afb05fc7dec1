from django.db import models

from tenants.models import TenantModel


class Note(TenantModel):
    text = models.TextField()

    def __str__(self) -> str:
        return self.text
