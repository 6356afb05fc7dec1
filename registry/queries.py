"""The statements of the registry: the hot ones, imports, and the comparison of counters.

Reads of services return JSON made by PostgreSQL, which is passed through.

A page reads ids from an index that ends in the list's order, and only then the rows. Totals come from the counters that
triggers keep. So a page costs the same with ten services and with a hundred thousand.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import orjson
from django.db import connection

from identity_platform.audit.origin import current_origin
from identity_platform.audit.writer import count_events
from identity_platform.postgresql.json_pages import Query, Slice, json_time, read_page
from identity_platform.postgresql.model_columns import ModelColumns
from identity_platform.postgresql.statements import execute, fetch_row, fetch_rows
from identity_platform.postgresql.values import SqlValue
from registry.models import ACTIVE, CREDENTIAL, EXPIRED, REVOKED, Service, ServiceCount, ServiceCredential

StoredCredentials = tuple[Service, list[ServiceCredential]]

_RECORD = (
    "json_build_object('id', s.id, 'name', s.name, 'description', s.description, 'type', s.type, 'status', s.status,"
    " 'base_url', s.base_url, 'api_version', s.api_version, 'tenant_id', s.tenant_id,"
    f" 'created_at', {json_time('s.created_at')}, 'updated_at', {json_time('s.updated_at')}, 'metadata', s.metadata)"
)
_ONE = f"SELECT {_RECORD}::text FROM registry_service s WHERE s.id = %s AND s.tenant_id = %s"
_SERVICE = ModelColumns(Service)
_CREDENTIAL = ModelColumns(ServiceCredential)
_STORED = f"""
SELECT {_SERVICE.of("s")}, {_CREDENTIAL.of("c")}
FROM registry_service s LEFT JOIN registry_servicecredential c ON c.service_id = s.id AND %s
WHERE s.id = %%(service_id)s AND s.tenant_id = %%(tenant_id)s
ORDER BY c.created_at DESC, c.id DESC
"""
_STORED_ONE = _STORED % "c.id = %(credential_id)s"
_STORED_BY_STATUS = {
    ACTIVE: _STORED % f"c.status = '{ACTIVE}' AND (c.expires_at IS NULL OR c.expires_at > now())",
    REVOKED: _STORED % f"c.status = '{REVOKED}'",
    EXPIRED: _STORED % f"c.status = '{ACTIVE}' AND c.expires_at <= now()",
}
# Nothing is written unless all rows are those that were opened: one was rotated, revoked or deleted meanwhile. Rows are
# locked in one order, so that two reads of the same rows cannot deadlock.
_RECORD_READS = f"""
WITH opened AS (
  SELECT c.id FROM registry_servicecredential c
    JOIN unnest(%(ids)s::uuid[], %(secrets)s::bytea[], %(expiries)s::timestamptz[]) AS o(id, secret, expires_at)
      ON o.id = c.id AND o.secret = c.secret AND o.expires_at IS NOT DISTINCT FROM c.expires_at
  WHERE c.status = '{ACTIVE}'
  ORDER BY c.id FOR NO KEY UPDATE OF c
), read AS (
  UPDATE registry_servicecredential c SET last_read_at = %(read_at)s FROM opened
  WHERE c.id = opened.id AND (SELECT count(*) FROM opened) = cardinality(%(ids)s::uuid[])
  RETURNING c.id
), audited AS (
  INSERT INTO audit_platformevent
    (action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id, details, tenant_id)
  SELECT %(action)s::text, 'success', %(actor_kind)s::text, %(actor_id)s::text, '{CREDENTIAL}', read.id::text,
    %(address)s::text, %(request_id)s::text, %(details)s::jsonb, %(tenant_id)s::uuid FROM read
)
SELECT count(*) FROM read
"""
# Counters compared with the services, in one statement, so in one snapshot.
_WRONG_COUNTS = """
SELECT type, status, sum(services) FROM (
    SELECT coalesce(type, '') AS type, status, count(*) AS services FROM registry_service WHERE tenant_id = %(tenant)s
    GROUP BY GROUPING SETS ((type, status), (status))
    UNION ALL
    SELECT type, status, -services FROM registry_servicecount WHERE tenant_id = %(tenant)s
) AS compared GROUP BY 1, 2 HAVING sum(services) <> 0 ORDER BY 1, 2
"""
# The lock keeps writers out until the end of the transaction: what they add meanwhile would be in no count.
_LOCK_SERVICES = "LOCK TABLE registry_service IN SHARE ROW EXCLUSIVE MODE"
_COUNT_AGAIN = """
INSERT INTO registry_servicecount (tenant_id, type, status, services)
SELECT tenant_id, coalesce(type, ''), status, count(*) FROM registry_service WHERE tenant_id = %s
GROUP BY GROUPING SETS ((tenant_id, type, status), (tenant_id, status))
"""
# An import has one statement and one parameter per batch: the triggers that count services run once.
_IMPORTED = (
    "jsonb_to_recordset(%s::jsonb) AS x(line bigint, id uuid, name text, description text, type text, status text,"
    " base_url text, api_version text, metadata jsonb, created_at timestamptz)"
)
# In the order of the unique index, so that overlapping imports wait for each other without a deadlock.
_INSERT_SERVICES = f"""
INSERT INTO registry_service
    (id, tenant_id, name, description, type, status, base_url, api_version, metadata, created_at, updated_at)
SELECT id, %s, name, coalesce(description, ''), type, coalesce(status, '{ACTIVE}'), base_url, coalesce(api_version, ''),
    coalesce(metadata, '{{}}'), coalesce(created_at, now()), now()
FROM {_IMPORTED} ORDER BY name, line ON CONFLICT DO NOTHING RETURNING id
"""
_UPDATE_SERVICES = f"""
UPDATE registry_service s SET description = coalesce(x.description, s.description), type = x.type, base_url = x.base_url,
    status = coalesce(x.status, s.status), api_version = coalesce(x.api_version, s.api_version),
    metadata = coalesce(x.metadata, s.metadata), updated_at = now()
FROM {_IMPORTED} WHERE s.tenant_id = %s AND lower(s.name) = lower(x.name) RETURNING s.id
"""
_INSERT_CREDENTIALS = """
INSERT INTO registry_servicecredential
    (id, tenant_id, service_id, name, type, status, secret, metadata, created_at, updated_at, expires_at)
SELECT id, %s, service_id, name, type, status, decode(secret, 'hex'), metadata, created_at, now(), expires_at
FROM jsonb_to_recordset(%s::jsonb) AS x(line bigint, id uuid, service_id uuid, name text, type text, status text,
    secret text, metadata jsonb, created_at timestamptz, expires_at timestamptz)
ORDER BY service_id, name, line ON CONFLICT DO NOTHING RETURNING id
"""
# From here on a page is looked up in two steps: past the end nothing is read, and behind the middle from the end.
FAR = 1000


def one_service(tenant_id: UUID, service_id: UUID) -> orjson.Fragment | None:
    """One service as ready JSON, or None."""
    row = fetch_row("default", _ONE, [service_id, tenant_id])
    return orjson.Fragment(row[0]) if row else None


def one_credential(tenant_id: UUID, service_id: UUID, credential_id: UUID) -> StoredCredentials | None:
    """The service with this one of its credentials, if it has it; None without such a service in the tenant."""
    return _stored(_STORED_ONE, {"tenant_id": tenant_id, "service_id": service_id, "credential_id": credential_id})


def credentials_by_status(tenant_id: UUID, service_id: UUID, status: str) -> StoredCredentials | None:
    """The service with its credentials that are active, revoked or expired, newest first; None likewise."""
    return _stored(_STORED_BY_STATUS[status], {"tenant_id": tenant_id, "service_id": service_id})


def _stored(statement: str, values: dict[str, SqlValue]) -> StoredCredentials | None:
    rows = fetch_rows("default", statement, values)
    if not rows:
        return None
    width = len(_SERVICE)
    service = _SERVICE.row("default", rows[0][:width])
    # A service without such credentials is one row without a credential's id.
    return service, [_CREDENTIAL.row("default", row[width:]) for row in rows if row[width] is not None]


def record_reads(
    tenant_id: UUID,
    credentials: list[ServiceCredential],
    at: datetime,
    *,
    action: str,
    details: Mapping[str, object],
) -> bool:
    """Store the time at which these secrets are returned and an audit event for each, in one statement.

    False, with nothing stored, if one of the credentials has changed since it was read.
    """
    values: dict[str, SqlValue] = {
        "ids": [row.pk for row in credentials],
        "secrets": [bytes(row.secret) for row in credentials],
        "expiries": [row.expires_at for row in credentials],
        "read_at": at,
        "action": action,
        **current_origin().audit_columns(),
        "details": orjson.dumps(details).decode(),
        "tenant_id": tenant_id,
    }
    [stored] = fetch_row("default", _RECORD_READS, values)
    if stored:
        count_events("default", action, number=stored)
    return bool(stored)


def page_of_services(
    *, tenant_id: UUID, page: int, limit: int, name: str | None, type: str | None, status: str | None
) -> tuple[int, orjson.Fragment]:
    """Return the total and the rows of one page, newest first, as JSON. `name` and `type` are whole values in any case."""
    if name is not None:
        return _page_of_namesakes(tenant_id, page, limit, name, type, status)
    kinds, parameters = _kinds(tenant_id, type, status)

    def rows(part: Slice) -> Query:
        reach = part.offset + part.limit
        ids, values = _ids(tenant_id, type, status, kinds, parameters, order=part.direction, reach=reach)
        sql = (
            f"SELECT coalesce(json_agg({_RECORD} ORDER BY s.created_at DESC, s.id DESC), '[]')::text"
            f" FROM ({ids} LIMIT %s OFFSET %s) p JOIN registry_service s ON s.id = p.id"
        )
        return Query(sql, [*values, part.limit, part.offset])

    count = f"SELECT coalesce(sum(k.services), 0)::bigint FROM registry_servicecount k WHERE {kinds}"
    with connection.cursor() as cursor:
        total, text = read_page(cursor, total=Query(count, parameters), rows=rows, page=page, limit=limit, far=FAR)
    return total, orjson.Fragment(text)


def _page_of_namesakes(
    tenant_id: UUID, page: int, limit: int, name: str, type: str | None, status: str | None
) -> tuple[int, orjson.Fragment]:
    """The services of one name in any case: an index finds the few there are."""
    where = "s.tenant_id = %s AND lower(s.name) = lower(%s)"
    values: list[UUID | str | int] = [tenant_id, name]
    if type is not None:
        where += " AND lower(s.type) = lower(%s)"
        values.append(type)
    if status is not None:
        where += " AND s.status = %s"
        values.append(status)

    def rows(part: Slice) -> Query:
        sql = (
            f"SELECT coalesce(json_agg({_RECORD} ORDER BY s.created_at DESC, s.id DESC), '[]')::text FROM"
            f" (SELECT * FROM registry_service s WHERE {where} ORDER BY s.created_at DESC, s.id DESC LIMIT %s OFFSET %s) s"
        )
        return Query(sql, [*values, part.limit, part.offset])

    count = f"SELECT count(*) FROM registry_service s WHERE {where}"
    with connection.cursor() as cursor:
        total, text = read_page(cursor, total=Query(count, values), rows=rows, page=page, limit=limit, far=None)
    return total, orjson.Fragment(text)


def _kinds(tenant_id: UUID, type: str | None, status: str | None) -> tuple[str, list[UUID | str | int]]:
    """Return which counters the filters mean, as a condition on `k`, and its parameters."""
    clauses = ["k.tenant_id = %s"]
    parameters: list[UUID | str | int] = [tenant_id]
    if type is None:
        clauses.append("k.type = ''")
    else:
        clauses.append("k.type <> '' AND lower(k.type) = lower(%s)")
        parameters.append(type)
    if status is not None:
        clauses.append("k.status = %s")
        parameters.append(status)
    return " AND ".join(clauses), parameters


def _ids(
    tenant_id: UUID,
    type: str | None,
    status: str | None,
    kinds: str,
    parameters: list[UUID | str | int],
    *,
    order: str,
    reach: int,
) -> tuple[str, list[UUID | str | int]]:
    """Return the ids that the filters mean, in the list's order or backwards, and the parameters of that."""
    by = f"created_at {order}, id {order}"
    if type is None:
        only = "" if status is None else " AND status = %s"
        values: list[UUID | str | int] = [tenant_id] if status is None else [tenant_id, status]
        return f"SELECT id FROM registry_service WHERE tenant_id = %s{only} ORDER BY {by}", values
    # Types that differ in case are few: the newest of each, merged. Asking all services for their type would read them all.
    return (
        "SELECT n.id FROM registry_servicecount k CROSS JOIN LATERAL (SELECT id, created_at FROM registry_service"
        f" WHERE tenant_id = k.tenant_id AND type = k.type AND status = k.status ORDER BY {by} LIMIT %s) n"
        f" WHERE {kinds} ORDER BY n.created_at {order}, n.id {order}",
        [reach, *parameters],
    )


def insert_services(tenant_id: UUID, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
    """Create the services of these rows, except those whose name is taken; return the ids of the new ones."""
    return _ids_of(_INSERT_SERVICES, [tenant_id, orjson.dumps(rows).decode()])


def update_services(tenant_id: UUID, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
    """Change the services with the names of these rows to their values; return the ids of the changed ones."""
    return _ids_of(_UPDATE_SERVICES, [orjson.dumps(rows).decode(), tenant_id])


def insert_credentials(tenant_id: UUID, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
    """Create the credentials of these rows, except those whose name is taken; return the ids of the new ones."""
    return _ids_of(_INSERT_CREDENTIALS, [tenant_id, orjson.dumps(rows).decode()])


def _ids_of(statement: str, values: list[SqlValue]) -> set[UUID]:
    return {pk for (pk,) in fetch_rows("default", statement, values)}


class WrongCount(NamedTuple):
    """By how much a counter differs from the services that it counts; without a type it counts those of all types."""

    type: str
    status: str
    difference: int


def wrong_counts(tenant_id: UUID) -> list[WrongCount]:
    """Return the counters of the tenant that are wrong."""
    rows = fetch_rows("default", _WRONG_COUNTS, {"tenant": tenant_id})
    return [WrongCount(type, status, int(difference)) for type, status, difference in rows]


def count_again(tenant_id: UUID) -> None:
    """Count the tenant's services again. Call it in a transaction."""
    execute("default", _LOCK_SERVICES)
    ServiceCount.objects.filter(tenant_id=tenant_id).delete()
    execute("default", _COUNT_AGAIN, [tenant_id])
