"""What `check_consistency` compares of services and their credentials (`tenants.consistency`)."""

from collections.abc import Collection, Iterable, Iterator
from uuid import UUID

from identity_platform.crypto import SealBroken
from registry import queries
from registry.models import ServiceCredential, open_secret
from tenants import keys
from tenants.consistency.findings import Finding, sealed_finding
from tenants.entering.router import GLOBAL_ALIAS


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
    wrong = queries.wrong_counts(tenant_id)
    rows = {f"{kind or 'all types'} {status}": abs(number) for kind, status, number in wrong}

    def count_again(ids: Collection[str]) -> int:
        queries.count_again(tenant_id)
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
