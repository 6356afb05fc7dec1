"""Copies in a tenant's database that differ from the rows of the global one (`tenants.records`)."""

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

from tenants.consistency.findings import MOST_IDS, Finding
from tenants.entering.router import GLOBAL_ALIAS
from tenants.records.projections import Difference, Projection

_BEHIND: Final = (
    "The tenant's database has other copies of these than the global database: a change was interrupted or made while the "
    "tenant's database was away, or the tenant's database was restored."
)
_AHEAD: Final = "The tenant's database has changes of these that the global database has lost by a restore."
_CHOOSE: Final = (
    "Make the lost changes again where they are valid; a change replaces the whole copy. --repair --overwrite-newer replaces "
    "the other ones by what the global database has."
)


def find_differing(kind: str, projection: Projection[Any], tenant_id: UUID) -> Iterator[Finding]:
    """Yield a finding for the copies of the entered tenant that are behind, and one for those that are ahead."""
    differences = projection.differences(tenant_id)
    behind = [difference for difference in differences if not difference.ahead]
    ahead = [difference for difference in differences if difference.ahead]
    if behind:
        yield Finding(
            kind,
            _rows(behind),
            _BEHIND,
            "--repair writes what the global database has.",
            partial(_apply, projection, tenant_id),
            GLOBAL_ALIAS,
        )
    if ahead:
        yield Finding(
            f"newer {kind}",
            _rows(ahead),
            _AHEAD,
            _CHOOSE,
            alias=GLOBAL_ALIAS,
            overwrite=partial(_apply, projection, tenant_id, newer=True),
        )


def _rows(differences: Collection[Difference]) -> dict[str, int]:
    return {str(difference): 1 for difference in list(differences)[:MOST_IDS]}


def _apply(projection: Projection[Any], tenant_id: UUID, ids: Collection[str], *, newer: bool = False) -> int:
    return projection.apply(tenant_id, newer=newer)
