"""Write the copies that are behind: of tenants that a job is about to open, and of all tenants in turn."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from identity_platform.hooks import Hook
from tenants import operating_modes
from tenants.entering import routes
from tenants.entering.context import in_tenant
from tenants.failure_reasons import why
from tenants.models import TenantDatabase
from tenants.records.projections import Difference, Projection, entered
from tenants.records.tenant_records import TENANTS
from tenants.states import Purpose, allowing

# How many tenants one run of the periodic task visits.
TENANTS_PER_RUN: Final = 500

# The projections of the apps above.
projections: Final[Hook[[], Projection[Any]]] = Hook()


def apply_all(tenant_id: UUID, *, direct: bool = False) -> int:
    """Write all copies of the tenant that are behind, in one global transaction; return how many. See `Projection.apply`."""
    mapping = TenantDatabase.objects.select_related("server").get(pk=tenant_id)
    with transaction.atomic(), entered(mapping, direct=direct):
        written = TENANTS.apply(tenant_id, direct=direct) + apply_others(tenant_id, direct=direct)
        lagging = TenantDatabase.objects.filter(pk=tenant_id, copies_lag=True)
        # A copy that is ahead stays, and may have what was taken away.
        if lagging.exists() and not _differences(tenant_id):
            lagging.update(copies_lag=False)
        return written


def apply_lagging(tenant_id: UUID, **_: object) -> None:
    """Write the copies of a tenant whose database was away, before a request reads them.

    Raises as `apply_all`, UnknownTenant, and TenantBusy for a tenant without a database.
    """
    routes.read_again(tenant_id)
    apply_all(tenant_id, direct=True)
    operating_modes.forget()


def apply_others(tenant_id: UUID, *, direct: bool = False, newer: bool = False) -> int:
    """Write likewise the copies of what belongs to the tenant, in the caller's transaction."""
    return sum(projection.apply(tenant_id, direct=direct, newer=newer) for projection in projections.call())


def _is_behind(tenant_id: UUID) -> bool:
    """Compare without a lock, since nearly all copies are equal."""
    with in_tenant(tenant_id, Purpose.RECORD):
        return any(not difference.ahead for difference in _differences(tenant_id))


def _differences(tenant_id: UUID) -> list[Difference]:
    return [
        difference for projection in [TENANTS, *projections.call()] for difference in projection.differences(tenant_id)
    ]


class Round:
    """Visits tenants in turn, in the order of their ids."""

    def __init__(self) -> None:
        self._last: UUID | None = None

    def apply_next(
        self, limit: int = TENANTS_PER_RUN, *, until: Callable[[], bool] = lambda: False
    ) -> tuple[int, list[str]]:
        """Write the copies that are behind of the next tenants; return the number of copies, and error messages.

        Tenants that are known to lag come first. One whose database is away does not stop the others: a later round visits it.
        `until` returns whether to stop.
        """
        mappings = TenantDatabase.objects.filter(status__in=allowing(Purpose.RECORD))
        mappings = mappings.exclude(server__in=operating_modes.closed_servers()).exclude(server__health__responds=False)
        by_id = mappings.order_by("pk").values_list("pk", "tenant__slug")
        lagging = list(by_id.filter(copies_lag=True)[:limit])
        due = list((by_id if self._last is None else by_id.filter(pk__gt=self._last))[:limit])
        written = 0
        problems: list[str] = []
        for tenant_id, slug in dict.fromkeys([*lagging, *due]):
            if until():
                return written, problems
            try:
                if (tenant_id, slug) in lagging or _is_behind(tenant_id):
                    written += apply_all(tenant_id)
            except Exception as problem:
                problems.append(f"{slug}: {why(problem)}")
        self._last = due[-1][0] if len(due) == limit else None
        return written, problems
