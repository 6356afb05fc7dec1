"""Roles of end users, in the tenant's database; the permissions are strings of the tenant's own choosing."""

import uuid

from django.db import models
from django.db.models.functions import Lower

from tenants.models import TenantModel
from userflow.endusers.models import EndUser

# Every registered end user is bound to it: the "default associations" of the specification.
DEFAULT_ROLE = "user"


class Role(TenantModel):
    """A named set of `resource:action` permissions."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63)
    description = models.CharField(max_length=1000, blank=True, default="")
    permissions: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    built_in = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(Lower("name"), name="role_name_unique")]

    def __str__(self) -> str:
        return self.name


class RoleBinding(TenantModel):
    """An end user has a role."""

    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="role_bindings")
    role = models.ForeignKey(Role, on_delete=models.CASCADE, related_name="bindings")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "role"], name="role_binding_unique")]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role_id}"
