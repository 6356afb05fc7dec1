"""What `check_consistency` compares of services and their credentials (`tenants.consistency`)."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final
from uuid import UUID

from django.db import connection

from identity_platform.crypto import SealBroken
from registry.models import ServiceCount, ServiceCredential, open_secret
from tenants import keys
from tenants.consistency.findings import Finding, sealed_finding
from tenants.entering.router import GLOBAL_ALIAS

# In one statement, so in one snapshot.
_WRONG_COUNTS: Final = """
SELECT type, status, sum(services) FROM (
    SELECT coalesce(type, '') AS type, status, count(*) AS services FROM registry_service WHERE tenant_id = %(tenant)s
    GROUP BY GROUPING SETS ((type, status), (status))
    UNION ALL
    SELECT type, status, -services FROM registry_servicecount WHERE tenant_id = %(tenant)s
) AS compared GROUP BY 1, 2 HAVING sum(services) <> 0 ORDER BY 1, 2
"""
# The lock keeps writers out until the end of the transaction: what they add meanwhile would be in no count.
_LOCK: Final = "LOCK TABLE registry_service IN SHARE ROW EXCLUSIVE MODE"
_COUNT_AGAIN: Final = """
INSERT INTO registry_servicecount (tenant_id, type, status, services)
SELECT tenant_id, coalesce(type, ''), status, count(*) FROM registry_service WHERE tenant_id = %s
GROUP BY GROUPING SETS ((tenant_id, type, status), (tenant_id, status))
"""


def examine(tenant_id: UUID | None) -> Iterable[Finding]:
    """Return what is found about a tenant."""
    return [] if tenant_id is None else [*_credentials(tenant_id), *_counters(tenant_id)]


def _credentials(tenant_id: UUID) -> Iterator[Finding]:
    if keys.is_readable(str(tenant_id)):
        rows = ServiceCredential.objects.filter(tenant_id=tenant_id).iterator()
        yield from sealed_finding(
            "service credentials",
            [row.pk for row in rows if not _is_readable(row)],
            "Enter these secrets again.",
            alias=GLOBAL_ALIAS,
        )


def _is_readable(row: ServiceCredential) -> bool:
    try:
        open_secret(bytes(row.secret), tenant_id=row.tenant_id, service_id=row.service_id, credential_id=row.pk)
    except SealBroken:
        return False
    return True


def _counters(tenant_id: UUID) -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute(_WRONG_COUNTS, {"tenant": tenant_id})
        rows = {f"{kind or 'all types'} {status}": abs(int(number)) for kind, status, number in cursor.fetchall()}

    def count_again(ids: Collection[str]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_LOCK)
            ServiceCount.objects.filter(tenant_id=tenant_id).delete()
            cursor.execute(_COUNT_AGAIN, [tenant_id])
        return len(ids)

    if rows:
        yield Finding(
            "wrong service count",
            rows,
            "Lists of services show totals that differ from the number of services by this much.",
            "--repair counts them again.",
            count_again,
            GLOBAL_ALIAS,
        )
