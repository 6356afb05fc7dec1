"""The tenant that a call inside a tenant may name, in its body or query; `permissions.tenant_at` finds out which counts.

Operators must name one: everybody else has a tenant already. The shapes have no docstrings: the API document would take
them for the descriptions of all that inherit them.
"""

from typing import Any

from rest_framework import serializers

from identity_platform.api.fields import Identifier
from identity_platform.api.page_shapes import PageQuery


class NamedTenant(serializers.Serializer[Any]):
    tenant_id = Identifier(required=False, help_text="For operators; also taken from the header X-Tenant-ID.")


class TenantPageQuery(NamedTenant, PageQuery):
    pass
