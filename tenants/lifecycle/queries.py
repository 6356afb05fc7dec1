"""Reads for commands, and the statements that find a server and reserve a database for a new tenant."""

import json
from collections.abc import Sequence
from typing import TypedDict
from uuid import UUID, uuid4

from django.db import connection

from identity_platform.crypto import new_data_key, wrap_data_key
from identity_platform.postgresql.statements import fetch_row
from tenants.copies.database_names import new_database_name
from tenants.entering.schema import schema_version
from tenants.errors import UnknownTenant
from tenants.models import DatabaseServer, Tenant, TenantDatabase
from tenants.states import State

# Creating a tenant with a filled warm pool is little more than this, so it is one round trip (docs/performance.md). If the
# slug is taken, `tenant` is empty and nothing is written. Two callers at once get different databases of the pool.
_RESERVE_TENANT = """
WITH tenant AS (
  INSERT INTO tenants_tenant (id, name, slug, settings, created_at, updated_at)
  VALUES (%(tenant_id)s, %(name)s, %(slug)s, %(settings)s, now(), now())
  ON CONFLICT DO NOTHING RETURNING id
), data_key AS (
  INSERT INTO tenants_datakey (owner, ring_key_id, wrapped, created_at)
  SELECT id::text, %(ring_key_id)s::text, %(wrapped_key)s::bytea, now() FROM tenant
), ready AS (
  DELETE FROM tenants_warmdatabase WHERE id = (
    SELECT w.id FROM tenants_warmdatabase w, tenant
    WHERE w.ready AND w.server_id = %(server_id)s AND w.schema_version = %(schema_version)s
    ORDER BY w.id LIMIT 1 FOR UPDATE OF w SKIP LOCKED)
  RETURNING name
)
INSERT INTO tenants_tenantdatabase (tenant_id, server_id, name, status, reason, schema_version, updated_at)
SELECT tenant.id, %(server_id)s, coalesce(ready.name, %(new_name)s),
  CASE WHEN ready.name IS NULL THEN 'provisioning' ELSE 'active' END, '',
  CASE WHEN ready.name IS NULL THEN '' ELSE %(schema_version)s END, now()
FROM tenant LEFT JOIN ready ON true
RETURNING name, status, schema_version, updated_at
"""


# One static statement: it is part of the few that create a tenant (`bin/bench provisioning`), and the ORM composes its own
# on every call. Deleted tenants keep their row but have no database.
_ROOMIEST = """
SELECT s.* FROM tenants_databaseserver s, LATERAL (
    SELECT s.capacity - count(*) AS room FROM tenants_tenantdatabase d WHERE d.server_id = s.id AND d.status <> 'deleted'
) free
WHERE s.accepts_tenants AND free.room > 0 AND (%(name)s::text IS NULL OR s.name = %(name)s)
  AND (%(region)s::text IS NULL OR s.region = %(region)s) AND s.labels @> %(labels)s::varchar[]
  AND (s.name = %(name)s OR NOT EXISTS (SELECT FROM tenants_operatingmode m WHERE m.server_id = s.id))
ORDER BY free.room DESC, s.id LIMIT 1
"""


class TenantRecord(TypedDict):
    """One line of `list_tenants`."""

    slug: str
    tenant_id: str
    name: str
    status: str
    server: str
    database: str
    schema_version: str
    current: bool
    reason: str


def reserve_tenant(
    server: DatabaseServer, *, name: str, slug: str, tenant_settings: dict[str, object]
) -> Tenant | None:
    """Write a tenant, its data key and its mapping; return it with the mapping, or None if the slug is taken.

    The mapping is `active` if a ready-made database was waiting on the server, else `provisioning`.
    """
    tenant_id = uuid4()
    wrapped = wrap_data_key(new_data_key(), owner=str(tenant_id))
    values: dict[str, str | int | bytes | UUID] = {
        "tenant_id": tenant_id,
        "name": name,
        "slug": slug,
        "settings": json.dumps(tenant_settings),
        "ring_key_id": wrapped.key_id,
        "wrapped_key": wrapped.blob,
        "server_id": server.pk,
        "schema_version": schema_version(),
        "new_name": new_database_name(),
    }
    row = fetch_row("default", _RESERVE_TENANT, values)
    if row is None:
        return None
    database, status, version, moment = row
    tenant = Tenant(id=tenant_id, name=name, slug=slug, settings=tenant_settings, created_at=moment, updated_at=moment)
    mapping = TenantDatabase(
        tenant=tenant, server=server, name=database, status=status, schema_version=version, updated_at=moment
    )
    for instance in (tenant, mapping):
        instance._state.adding, instance._state.db = False, connection.alias
    return tenant


def roomiest_server(name: str | None, region: str | None, labels: Sequence[str]) -> DatabaseServer | None:
    """Return the server that takes new tenants and has most room, of those with this name, region and all these labels."""
    parameters = {"name": name, "region": region, "labels": list(labels)}
    return next(iter(DatabaseServer.objects.raw(_ROOMIEST, parameters)), None)


def tenant_named(slug: str) -> Tenant:
    """Return the tenant with this slug and its database, in any state but deleted. Raises UnknownTenant."""
    tenant = Tenant.objects.select_related("database__server").filter(slug__iexact=slug).first()
    if tenant is None or tenant.database.status == State.DELETED:
        raise UnknownTenant(f"No tenant has the slug {slug}. `list_tenants` shows all tenants.")
    return tenant


def listed(*, status: str | None = None) -> list[TenantRecord]:
    """Return all tenants that are not deleted, by slug."""
    mappings = TenantDatabase.objects.exclude(status=State.DELETED).select_related("tenant", "server")
    if status is not None:
        mappings = mappings.filter(status=status)
    return [
        {
            "slug": mapping.tenant.slug,
            "tenant_id": str(mapping.pk),
            "name": mapping.tenant.name,
            "status": mapping.status,
            "server": mapping.server.name,
            "database": mapping.name,
            "schema_version": mapping.schema_version,
            "current": mapping.schema_version == schema_version(),
            "reason": mapping.reason,
        }
        for mapping in mappings.order_by("tenant__slug")
    ]
