"""What `check_consistency` compares of collected metrics (`tenants.consistency`)."""

from collections.abc import Collection, Iterable
from uuid import UUID

from django.db.models import Max

from console.metrics.models import TenantFigures
from identity_platform.audit.models import TenantEvent
from tenants.consistency.findings import Finding
from tenants.entering.router import GLOBAL_ALIAS


def examine(tenant_id: UUID | None) -> Iterable[Finding]:
    """Return what is found about the entered tenant."""
    # The position first: the log grows meanwhile.
    counted = TenantFigures.objects.filter(pk=tenant_id).values_list("last_event_id", flat=True).first()
    newest = TenantEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0 if counted else 0
    if not counted or counted <= newest:
        return []

    def count_on(ids: Collection[str]) -> int:
        return TenantFigures.objects.filter(pk=tenant_id, last_event_id=counted).update(last_event_id=newest)

    return [
        Finding(
            "metrics ahead of audit log",
            {str(counted): 1},
            "Sign-ins are counted up to an event that the tenant's audit log does not have yet, so later ones are not counted.",
            "--repair continues at the newest event.",
            count_on,
            GLOBAL_ALIAS,
        )
    ]
