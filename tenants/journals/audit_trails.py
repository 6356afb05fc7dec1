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
from tenants import keys, operating_modes
from tenants.database_servers.visits import Visits
from tenants.entering.context import in_tenant
from tenants.errors import DataKeyLocked, UnknownTenant
from tenants.failure_reasons import why
from tenants.models import TenantDatabase
from tenants.states import Purpose, State

# States in which a trail can be sealed. During a move or migration a new link would be lost or wait.
WRITABLE = (State.ACTIVE, State.SUSPENDED)
READABLE = (*WRITABLE, State.MIGRATING, State.MOVING)


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a trail: a tenant, or the platform if there is no id."""

    name: str
    tenant_id: UUID | None = None


THE_PLATFORM = Owner(PLATFORM)


@contextmanager
def opened(owner: Owner) -> Iterator[Trail]:
    """Enter the owner's tenant and yield the trail. Purpose.INSPECT, because suspended tenants' trails are sealed too."""
    if owner.tenant_id is None:
        yield platform_trail(keys.platform_key())
        return
    with in_tenant(owner.tenant_id, Purpose.INSPECT):
        yield tenant_trail(owner.tenant_id, keys.tenant_key(owner.tenant_id))


def owners(only: Sequence[str] = (), *, states: Sequence[State] = WRITABLE) -> list[Owner]:
    """Return the platform and every tenant in one of the states, or those in `only` (slugs, ids, `platform`).

    Raises UnknownTenant, which names the unknown ones.
    """
    mappings = TenantDatabase.objects.filter(status__in=states).order_by("tenant_id")
    if states == WRITABLE and not only:
        mappings = mappings.exclude(server__in=operating_modes.closed_servers())
    everyone = [
        THE_PLATFORM,
        *(Owner(slug, tenant_id) for tenant_id, slug in mappings.values_list("tenant_id", "tenant__slug").iterator()),
    ]
    if not only:
        return everyone
    selected = set(only)
    chosen = [owner for owner in everyone if {owner.name, str(owner.tenant_id)} & selected]
    missing = selected - {name for owner in chosen for name in (owner.name, str(owner.tenant_id))}
    if missing:
        raise UnknownTenant(
            f"No readable tenant has this slug or id: {', '.join(sorted(missing))}. "
            "`list_tenants` shows all tenants and their states."
        )
    return chosen


class TrailUnreachable(Exception):
    """The owner's database or key is not available. Other owners are not affected."""


@contextmanager
def reachable() -> Iterator[None]:
    """Raise TrailUnreachable, without user data, for any error of a database, a key or a tenant's state."""
    try:
        yield
    except DataKeyLocked as locked:
        raise TrailUnreachable("its data key is missing or cannot be decrypted") from locked
    except Exception as problem:
        # Also for bugs: one trail must not stop the others.
        raise TrailUnreachable(why(problem)) from problem


def seal(owner: Owner, *, wait: float = sealing.WAIT_SECONDS) -> Sealed:
    """Seal one trail up to the oldest open transaction. Raises TrailUnreachable."""
    with reachable(), opened(owner) as trail:
        return sealing.seal(trail, wait=wait)


def seal_all(
    *, until: Callable[[], bool] = lambda: False, wait: float = 1.0, visits: Visits | None = None
) -> tuple[int, list[str]]:
    """Seal every trail; return the number of sealed events, and error messages.

    `until` returns whether to stop. With `visits`, tenants whose database was not written since the last visit are left out.
    """
    events, problems = 0, []
    unchanged = visits.unchanged() if visits else set()
    for owner in owners():
        if until():
            break
        if owner.tenant_id in unchanged:
            continue
        try:
            sealed = seal(owner, wait=wait)
        except TrailUnreachable as problem:
            problems.append(f"{owner.name}: {problem}")
            continue
        events += sealed.events
        if visits and owner.tenant_id and not sealed.held_back:
            visits.visited(owner.tenant_id)
    return events, problems


def verify(owner: Owner, *, seen: Callable[[int], None] = lambda events: None) -> Verdict:
    """Verify one trail against its chain. Raises TrailUnreachable."""
    with reachable(), opened(owner) as trail:
        return verifying.verify(trail, seen=seen)


def purge(owner: Owner, *, days: int | None = None, seen: Callable[[int], None] = lambda events: None) -> int:
    """Seal, then delete events older than AUDIT_RETENTION_DAYS. Raises TrailUnreachable."""
    before = now() - timedelta(days=days or settings.AUDIT_RETENTION_DAYS)
    with reachable(), opened(owner) as trail:
        sealing.seal(trail)
        return purging.purge(trail, before=before, seen=seen)


def accept_end(owner: Owner) -> int:
    """Accept a restored tenant's newest link as the end of its chain, and record it. Raises TrailUnreachable."""
    with reachable(), opened(owner) as trail:
        number = verifying.accept_end(trail)
        record_for_platform(
            "audit.end_accepted",
            tenant_id=owner.tenant_id,
            target=("trail", trail.owner),
            details={"link": number},
        )
        return number
