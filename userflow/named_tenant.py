"""The optional `tenant_id` in a body or query; `permissions.tenant_at` decides which tenant applies.

Operators must send it; all other callers belong to a tenant. Serializers that others inherit have no docstrings, because
the API document would use them as descriptions of all of them.
"""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar
from uuid import UUID

from rest_framework import serializers
from rest_framework.permissions import BasePermission

from identity_platform.api.errors import ApiError
from identity_platform.api.fields import Identifier
from identity_platform.api.pagination import PageQuery
from identity_platform.api.views import ApiViewSet
from tenants.errors import TenantBusy, TenantRequired, TenantSuspended, UnknownTenant
from userflow.ids import id_or
from userflow.sessions.permissions import needs, tenant_at

# Errors of a request that names its tenant.
TENANCY = (UnknownTenant, TenantSuspended, TenantBusy, TenantRequired)


class TenantParameter(serializers.Serializer[object]):
    tenant_id = Identifier(required=False, help_text="For operators. Alternatively the header X-Tenant-ID.")


class OptionalTenantIn(TenantParameter):
    """For operators, who can name the tenant here."""


class TenantPageQuery(TenantParameter, PageQuery):
    pass


class InTenantViewSet(ApiViewSet):
    """Endpoints for one kind of record of a tenant, which `area:read` and `area:write` permit."""

    area: ClassVar[str]
    reads: ClassVar[Collection[str]] = ("list", "retrieve")
    # The error of an unknown or malformed id in the path.
    unknown: ClassVar[type[ApiError]]

    def get_permissions(self) -> Sequence[BasePermission]:
        return [needs(f"{self.area}:{'read' if self.action in self.reads else 'write'}")()]

    def tenant(self, tenant_id: UUID | None) -> UUID | None:
        """Return the tenant of the call. Raises what `tenant_at` raises."""
        return tenant_at(self.request, tenant_id)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the use case: the tenant, the ids of the path, and the validated fields."""
        fields = self.validated_fields()
        tenant_id = self.tenant(fields.pop("tenant_id", None))
        return {
            "tenant_id": tenant_id,
            **{name: id_or(text, self.unknown) for name, text in self.kwargs.items()},
            **fields,
        }

    def changes(self) -> dict[str, Any]:
        """Return the same arguments with the fields in one, `changes`."""
        fields = self.arguments()
        return {**{name: fields.pop(name) for name in ("tenant_id", *self.kwargs)}, "changes": fields}
