"""The optional `tenant_id` in a body or query; `permissions.tenant_at` decides which tenant applies.

Operators must send it; all other callers belong to a tenant. The serializers have no docstrings, because the API document
would use them as descriptions of all serializers that inherit them.
"""

from rest_framework import serializers

from identity_platform.api.fields import Identifier
from identity_platform.api.page_shapes import PageQuery
from tenants.errors import TenantBusy, TenantRequired, TenantSuspended, UnknownTenant

# Errors of a request that names its tenant.
TENANCY = (UnknownTenant, TenantSuspended, TenantBusy, TenantRequired)


class NamedTenant(serializers.Serializer[object]):
    tenant_id = Identifier(required=False, help_text="For operators. Alternatively the header X-Tenant-ID.")


class TenantPageQuery(NamedTenant, PageQuery):
    pass
