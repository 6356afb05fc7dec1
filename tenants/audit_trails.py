"""All audit trails: the platform's and every tenant's, each sealed, verified and purged under its owner's key."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.utils.timezone import now

from identity_platform.audit import purge as purging
from identity_platform.audit import sealing
from identity_platform.audit import verification as verifying
from identity_platform.audit.chain import PLATFORM, Trail, platform_trail, tenant_trail
from identity_platform.audit.sealing import Sealed
from identity_platform.audit.verification import Verdict
from identity_platform.audit.writer import record_for_platform
from tenants import keys
from tenants.context import in_tenant
from tenants.errors import DataKeyLocked, UnknownTenant
from tenants.models import TenantDatabase
from tenants.schema import why
from tenants.states import Purpose, State

# What may be written to: while a tenant is moved or migrated a new link would be lost or wait.
WRITABLE = (State.ACTIVE, State.SUSPENDED)
READABLE = (*WRITABLE, State.MIGRATING, State.MOVING)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose trail: a tenant's, or without an id the platform's."""

    name: str
    tenant_id: UUID | None = None


THE_PLATFORM = Owner(PLATFORM)


@contextmanager
def opened(owner: Owner) -> Iterator[Trail]:
    """The owner's trail, its tenant entered. Also a suspended tenant's is kept, so it is entered to inspect it."""
    if owner.tenant_id is None:
        yield platform_trail(keys.platform_key())
        return
    with in_tenant(owner.tenant_id, Purpose.INSPECT):
        yield tenant_trail(owner.tenant_id, keys.tenant_key(owner.tenant_id))


def owners(only: Sequence[str] = (), *, states: Sequence[State] = WRITABLE) -> list[Owner]:
    """The platform and every tenant in one of the states; or those of `only` (slugs, ids, `platform`).

    Raises UnknownTenant, which names what there is not.
    """
    found = TenantDatabase.objects.filter(status__in=states).order_by("tenant_id")
    everybody = [
        THE_PLATFORM,
        *(Owner(slug, tenant_id) for tenant_id, slug in found.values_list("tenant_id", "tenant__slug").iterator()),
    ]
    if not only:
        return everybody
    wanted = set(only)
    chosen = [owner for owner in everybody if {owner.name, str(owner.tenant_id)} & wanted]
    missing = wanted - {name for owner in chosen for name in (owner.name, str(owner.tenant_id))}
    if missing:
        raise UnknownTenant(
            f"No tenant that can be looked into has this slug or id: {', '.join(sorted(missing))}. "
            "`list_tenants` shows them all with their state."
        )
    return chosen


class TrailUnreachable(Exception):
    """The owner's database or key does not answer; the others are not affected."""


@contextmanager
def reachable() -> Iterator[None]:
    """Narrow what a database, a key or a tenant's state may raise to TrailUnreachable, without data of people."""
    try:
        yield
    except DataKeyLocked as locked:
        raise TrailUnreachable("its data key is missing or cannot be opened") from locked
    except Exception as problem:
        # Also a defect of ours: one trail must not keep the others from their turn.
        raise TrailUnreachable(why(problem)) from problem


def seal(owner: Owner, *, wait: float = sealing.WAIT_SECONDS) -> Sealed:
    """Seal one trail as far as it is certain. Raises TrailUnreachable."""
    with reachable(), opened(owner) as trail:
        return sealing.seal(trail, wait=wait)


def seal_all(*, until: Callable[[], bool] = lambda: False, wait: float = 1.0) -> tuple[int, list[str]]:
    """Seal every trail, one after the other, until told to end; gives how many events were sealed and what failed."""
    events, problems = 0, []
    for owner in owners():
        if until():
            break
        try:
            events += seal(owner, wait=wait).events
        except TrailUnreachable as problem:
            problems.append(f"{owner.name}: {problem}")
    return events, problems


def verify(owner: Owner, *, seen: Callable[[int], None] = lambda events: None) -> Verdict:
    """Compare one trail with its chain. Raises TrailUnreachable."""
    with reachable(), opened(owner) as trail:
        return verifying.verify(trail, seen=seen)


def purge(owner: Owner, *, days: int | None = None, seen: Callable[[int], None] = lambda events: None) -> int:
    """Seal, then let go of the events that are older than AUDIT_RETENTION_DAYS. Raises TrailUnreachable."""
    before = now() - timedelta(days=days or settings.AUDIT_RETENTION_DAYS)
    with reachable(), opened(owner) as trail:
        sealing.seal(trail)
        return purging.purge(trail, before=before, seen=seen)


def accept_end(owner: Owner) -> int:
    """Take a restored tenant's newest link as the end of its chain, and write that down. Raises TrailUnreachable."""
    with reachable(), opened(owner) as trail:
        number = verifying.accept_end(trail)
        record_for_platform(
            "audit.end_accepted",
            tenant_id=owner.tenant_id,
            target=("trail", trail.owner),
            details={"link": number},
        )
        return number
