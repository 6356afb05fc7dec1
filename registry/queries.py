"""The hot reads of services: one statement each, with JSON made by PostgreSQL and passed through.

A page reads ids from an index that ends in the list's order, and only then the rows. Totals come from the counters that
triggers keep. So a page costs the same with ten services and with a hundred thousand.
"""

from typing import Any
from uuid import UUID

import orjson
from django.db import connection

from identity_platform.api.pagination import offset

_TIME = "to_char(s.{} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
_RECORD = (
    "json_build_object('id', s.id, 'name', s.name, 'description', s.description, 'type', s.type, 'status', s.status,"
    " 'base_url', s.base_url, 'api_version', s.api_version, 'tenant_id', s.tenant_id,"
    f" 'created_at', {_TIME.format('created_at')}, 'updated_at', {_TIME.format('updated_at')}, 'metadata', s.metadata)"
)
_ONE = f"SELECT {_RECORD}::text FROM registry_service s WHERE s.id = %s AND s.tenant_id = %s"
# From here on a page is looked up in two steps: past the end nothing is read, and behind the middle from the end.
FAR = 1000


def one_service(tenant_id: UUID, service_id: UUID) -> orjson.Fragment | None:
    """One service as ready JSON, or None."""
    with connection.cursor() as cursor:
        cursor.execute(_ONE, [service_id, tenant_id])
        row = cursor.fetchone()
    return orjson.Fragment(row[0]) if row else None


def page_of_services(
    *, tenant_id: UUID, page: int, limit: int, name: str | None, type: str | None, status: str | None
) -> tuple[int, orjson.Fragment]:
    """The total and the rows of one page, newest first, as ready JSON. `name` and `type` are whole values in any case."""
    if name is not None:
        return _page_of_namesakes(tenant_id, page, limit, name, type, status)
    kinds, asked = _kinds(tenant_id, type, status)
    total_of = f"SELECT coalesce(sum(k.services), 0)::bigint FROM registry_servicecount k WHERE {kinds}"
    skipped, order = offset(page, limit), "DESC"
    with connection.cursor() as cursor:
        if skipped >= FAR:
            cursor.execute(total_of, asked)
            total: int = cursor.fetchone()[0]
            if skipped >= total:
                return total, orjson.Fragment(b"[]")
            if skipped > total // 2:
                order, limit = "ASC", min(limit, total - skipped)
                skipped = total - skipped - limit
        ids, values = _ids(tenant_id, type, status, kinds, asked, order=order, reach=skipped + limit)
        cursor.execute(
            f"SELECT ({total_of}), (SELECT coalesce(json_agg({_RECORD} ORDER BY s.created_at DESC, s.id DESC), '[]')::text"
            f" FROM ({ids} LIMIT %s OFFSET %s) p JOIN registry_service s ON s.id = p.id)",
            [*asked, *values, limit, skipped],
        )
        total, rows = cursor.fetchone()
    return total, orjson.Fragment(rows)


def _page_of_namesakes(
    tenant_id: UUID, page: int, limit: int, name: str, type: str | None, status: str | None
) -> tuple[int, orjson.Fragment]:
    """The services of one name in any case: an index finds the few there are."""
    where = "s.tenant_id = %s AND lower(s.name) = lower(%s)"
    values: list[Any] = [tenant_id, name]
    if type is not None:
        where += " AND lower(s.type) = lower(%s)"
        values.append(type)
    if status is not None:
        where += " AND s.status = %s"
        values.append(status)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT (SELECT count(*) FROM registry_service s WHERE {where}),"
            f" (SELECT coalesce(json_agg({_RECORD} ORDER BY s.created_at DESC, s.id DESC), '[]')::text FROM"
            f" (SELECT * FROM registry_service s WHERE {where} ORDER BY s.created_at DESC, s.id DESC LIMIT %s OFFSET %s) s)",
            [*values, *values, limit, offset(page, limit)],
        )
        total, rows = cursor.fetchone()
    return total, orjson.Fragment(rows)


def _kinds(tenant_id: UUID, type: str | None, status: str | None) -> tuple[str, list[Any]]:
    """Which counters the filters mean, as a condition on `k`, and its parameters."""
    clauses = ["k.tenant_id = %s"]
    asked: list[Any] = [tenant_id]
    if type is None:
        clauses.append("k.type = ''")
    else:
        clauses.append("k.type <> '' AND lower(k.type) = lower(%s)")
        asked.append(type)
    if status is not None:
        clauses.append("k.status = %s")
        asked.append(status)
    return " AND ".join(clauses), asked


def _ids(
    tenant_id: UUID, type: str | None, status: str | None, kinds: str, asked: list[Any], *, order: str, reach: int
) -> tuple[str, list[Any]]:
    """The ids that the filters mean, in the list's order or backwards, and the parameters of that."""
    by = f"created_at {order}, id {order}"
    if type is None:
        only = "" if status is None else " AND status = %s"
        values = [tenant_id] if status is None else [tenant_id, status]
        return f"SELECT id FROM registry_service WHERE tenant_id = %s{only} ORDER BY {by}", values
    # Types that differ in case are few: the newest of each, merged. Asking all services for their type would read them all.
    return (
        "SELECT n.id FROM registry_servicecount k CROSS JOIN LATERAL (SELECT id, created_at FROM registry_service"
        f" WHERE tenant_id = k.tenant_id AND type = k.type AND status = k.status ORDER BY {by} LIMIT %s) n"
        f" WHERE {kinds} ORDER BY n.created_at {order}, n.id {order}",
        [reach, *asked],
    )
