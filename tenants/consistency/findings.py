"""What `check_consistency` finds: contradictions between a tenant's database and the global one."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from identity_platform.hooks import Hook
from tenants.entering.target import TENANT_ALIAS

# Of one kind of finding. More are found once these are repaired.
MOST_IDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction. `rows` maps ids to numbers of rows; ids are never personal data."""

    kind: str
    rows: Mapping[str, int]
    meaning: str
    remedy: str
    # Gets ids of `rows`, and returns how many rows it has changed. It runs in a transaction of the database `alias`, with the
    # tenant entered. None if only an operator can decide.
    repair: Callable[[Collection[str]], int] | None = None
    alias: str = TENANT_ALIAS
    # As `repair`, once an operator has decided that the tenant's database must follow the global one.
    overwrite: Callable[[Collection[str]], int] | None = None

    @property
    def count(self) -> int:
        return sum(self.rows.values())


class Comparison(NamedTuple):
    """What a tenant's database has not recorded of what the global one says, in words, and the function that repairs it."""

    differences: Sequence[str]
    repair: Callable[[], None]


# `check_consistency` examines a tenant, which is entered, or the platform (None). The functions change nothing.
examinations: Final[Hook[[UUID | None], Iterable[Finding]]] = Hook()

# `check_tenants` compares a tenant's database with the global one.
comparisons: Final[Hook[[UUID], Comparison]] = Hook()


def sealed_finding(what: str, ids: Collection[object], remedy: str, *, alias: str = TENANT_ALIAS) -> Iterator[Finding]:
    """Yield a finding about sealed values that do not open with their owner's data key, if there are any."""
    if ids:
        yield Finding(
            f"unreadable {what}",
            {str(row_id): 1 for row_id in list(ids)[:MOST_IDS]},
            "They were sealed under another data key or for another row.",
            remedy,
            alias=alias,
        )
