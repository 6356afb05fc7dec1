"""The base of enrolled factors."""

import uuid
from collections.abc import Sequence
from typing import ClassVar

from django.db import models

from identity_platform.restoring import RestoredRow
from userflow.accounts.models import Account


def remove_factors(model: type[models.Model], matches: Sequence[RestoredRow]) -> dict[str, int]:
    """Delete factors or backup codes of end users in a restored database, which were removed since its backup.

    Return numbers of what ends with them, by kind (`refresh_methods`).
    """
    from mfa.factors import refresh_methods  # it imports the models

    rows = model._base_manager.filter(pk__in=[match.pk for match in matches])
    user_ids = set(rows.values_list("user_id", flat=True))
    rows.delete()
    return refresh_methods(matches[0].tenant_id, user_ids)


class Factor(models.Model):
    """An enrolled factor. Its user can sign in with it, list it and remove it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(Account, on_delete=models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)

    kind: ClassVar[str]

    class Meta:
        abstract = True

    @classmethod
    def remove_again(cls, matches: Sequence[RestoredRow]) -> dict[str, int]:
        """Remove factors of a restored database that were removed or replaced since its backup."""
        return remove_factors(cls, matches)

    def summary(self) -> dict[str, object]:
        """Return the factor as lists of factors show it."""
        return {
            "id": self.pk,
            "kind": self.kind,
            "name": str(self),
            "created_at": self.created_at,
            "last_used_at": self.last_used_at,
        }
