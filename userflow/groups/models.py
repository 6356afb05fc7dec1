"""Groups of end users; a group carries roles."""

import uuid

from django.db import models
from django.db.models.functions import Lower

from tenants.models import TenantModel
from userflow.endusers.models import EndUser
from userflow.roles.models import Role


class Group(TenantModel):
    """A named set of end users, with roles that all of them have."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=255)
    description = models.CharField(max_length=1000, blank=True, default="")
    roles = models.ManyToManyField(Role, related_name="groups", blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(Lower("name"), name="group_name_unique")]

    def __str__(self) -> str:
        return self.name


class GroupMembership(TenantModel):
    """An end user belongs to a group."""

    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="group_memberships")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group", "user"], name="group_membership_unique")]

    def __str__(self) -> str:
        return f"{self.group_id} {self.user_id}"
