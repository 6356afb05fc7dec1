"""The promise of a database to a new tenant: its rows in the global database, written as one statement.

Making a tenant with the warm pool filled is nothing but this, so its caller waits for one round trip here and not for a
dozen (docs/performance.md).
"""

from typing import Any
from uuid import uuid4

import orjson
from django.db import connection
from django.utils.timezone import now

from identity_platform.crypto import new_data_key, wrap_data_key
from identity_platform.postgresql.parts import Part, together
from tenants.models import DatabaseServer, Tenant, TenantDatabase
from tenants.schema import schema_version
from tenants.states import State
from tenants.warm_pool import new_database_name

# Where the slug is taken there is no row, and nothing else is written.
_TENANT = """
INSERT INTO tenants_tenant (id, name, slug, settings, created_at, updated_at)
VALUES (%(tenant_id)s, %(tenant_name)s, %(tenant_slug)s, %(tenant_settings)s, %(tenant_now)s, %(tenant_now)s)
ON CONFLICT DO NOTHING RETURNING id
"""
_KEY = """
INSERT INTO tenants_datakey (owner, ring_key_id, wrapped, created_at)
SELECT %(key_owner)s::text, %(key_ring)s::text, %(key_wrapped)s::bytea, %(key_now)s::timestamptz FROM tenant
"""
# One ready-made database out of the warm pool, if one waits; of two callers at once each gets its own.
_READY_MADE = """
DELETE FROM tenants_warmdatabase WHERE id = (
  SELECT w.id FROM tenants_warmdatabase w, tenant WHERE w.ready AND w.server_id = %(ready_server)s
    AND w.schema_version = %(ready_version)s ORDER BY w.id LIMIT 1 FOR UPDATE OF w SKIP LOCKED)
RETURNING name
"""
_MAPPING = """
INSERT INTO tenants_tenantdatabase (tenant_id, server_id, name, status, reason, schema_version, updated_at)
SELECT tenant.id, %(mapping_server)s::bigint, coalesce(ready.name, %(mapping_name)s::text),
  CASE WHEN ready.name IS NULL THEN %(mapping_begun)s::text ELSE %(mapping_active)s::text END, '',
  CASE WHEN ready.name IS NULL THEN '' ELSE %(mapping_version)s::text END, %(mapping_now)s::timestamptz
FROM tenant LEFT JOIN ready ON true RETURNING name, status, schema_version
"""


def reserve(server: DatabaseServer, *, name: str, slug: str, tenant_settings: dict[str, Any]) -> Tenant | None:
    """A tenant with its data key and its mapping, in the caller's transaction; None when the slug is taken.

    The mapping is `active` when a ready-made database waited on the server, else `provisioning`.
    """
    moment, tenant_id = now(), uuid4()
    wrapped = wrap_data_key(new_data_key(), owner=str(tenant_id))
    tenant = {
        "tenant_id": tenant_id,
        "tenant_name": name,
        "tenant_slug": slug,
        "tenant_settings": orjson.dumps(tenant_settings).decode(),
        "tenant_now": moment,
    }
    key = {"key_owner": str(tenant_id), "key_ring": wrapped.key_id, "key_wrapped": wrapped.blob, "key_now": moment}
    mapping = {
        "mapping_server": server.pk,
        "mapping_name": new_database_name(),
        "mapping_begun": State.PROVISIONING.value,
        "mapping_active": State.ACTIVE.value,
        "mapping_version": schema_version(),
        "mapping_now": moment,
    }
    parts = [
        Part("tenant", _TENANT, tenant),
        Part("key", _KEY, key),
        Part("ready", _READY_MADE, {"ready_server": server.pk, "ready_version": schema_version()}),
        Part("mapping", _MAPPING, mapping),
    ]
    with connection.cursor() as cursor:
        cursor.execute(*together(parts, "SELECT name, status, schema_version FROM mapping"))
        row = cursor.fetchone()
    if row is None:
        return None
    database, status, version = row
    made = Tenant.from_db(
        "default",
        ["id", "name", "slug", "settings", "created_at", "updated_at"],
        [tenant_id, name, slug, tenant_settings, moment, moment],
    )
    made.database = TenantDatabase.from_db(
        "default",
        ["tenant_id", "server_id", "name", "status", "reason", "schema_version", "updated_at"],
        [tenant_id, server.pk, database, status, "", version, moment],
    )
    made.database.server = server
    return made
