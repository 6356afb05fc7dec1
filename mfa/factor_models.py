"""The base of enrolled factors."""

import uuid
from typing import ClassVar

from django.db import models

from userflow.accounts.models import Account


class Factor(models.Model):
    """An enrolled factor. Its user can sign in with it, list it and remove it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(Account, on_delete=models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)

    kind: ClassVar[str]

    class Meta:
        abstract = True

    def summary(self) -> dict[str, object]:
        """Return the factor as lists of factors show it."""
        return {
            "id": self.pk,
            "kind": self.kind,
            "name": str(self),
            "created_at": self.created_at,
            "last_used_at": self.last_used_at,
        }
