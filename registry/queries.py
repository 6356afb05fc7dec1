"""The hot reads of services: one statement each, with JSON made by PostgreSQL and passed through.

A page reads ids from an index that ends in the list's order, and only then the rows. Totals come from the counters that
triggers keep. So a page costs the same with ten services and with a hundred thousand.
"""

from uuid import UUID

import orjson
from django.db import connection

from identity_platform.postgresql.json_pages import Query, Slice, json_time, read_page

_RECORD = (
    "json_build_object('id', s.id, 'name', s.name, 'description', s.description, 'type', s.type, 'status', s.status,"
    " 'base_url', s.base_url, 'api_version', s.api_version, 'tenant_id', s.tenant_id,"
    f" 'created_at', {json_time('s.created_at')}, 'updated_at', {json_time('s.updated_at')}, 'metadata', s.metadata)"
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

    def rows(part: Slice) -> Query:
        reach = part.offset + part.limit
        ids, values = _ids(tenant_id, type, status, kinds, asked, order=part.direction, reach=reach)
        sql = (
            f"SELECT coalesce(json_agg({_RECORD} ORDER BY s.created_at DESC, s.id DESC), '[]')::text"
            f" FROM ({ids} LIMIT %s OFFSET %s) p JOIN registry_service s ON s.id = p.id"
        )
        return Query(sql, [*values, part.limit, part.offset])

    count = f"SELECT coalesce(sum(k.services), 0)::bigint FROM registry_servicecount k WHERE {kinds}"
    with connection.cursor() as cursor:
        total, text = read_page(cursor, total=Query(count, asked), rows=rows, page=page, limit=limit, far=FAR)
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
    """Which counters the filters mean, as a condition on `k`, and its parameters."""
    clauses = ["k.tenant_id = %s"]
    asked: list[UUID | str | int] = [tenant_id]
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
    tenant_id: UUID,
    type: str | None,
    status: str | None,
    kinds: str,
    asked: list[UUID | str | int],
    *,
    order: str,
    reach: int,
) -> tuple[str, list[UUID | str | int]]:
    """The ids that the filters mean, in the list's order or backwards, and the parameters of that."""
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
        [reach, *asked],
    )
