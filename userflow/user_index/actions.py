"""Compare the index with the tenants' databases, and correct it: every day, after a restore, and on request."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from tenants.entering.context import in_tenant
from tenants.errors import UnknownTenant
from tenants.failure_reasons import why
from tenants.models import TenantDatabase
from tenants.states import Purpose, State, allowing
from userflow.accounts.models import EndUser
from userflow.user_index import entries
from userflow.user_index.models import IndexedEndUser

log = structlog.get_logger("identity.user_index")

_BEFORE_ALL: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Difference:
    """How many entries differed: end users without one or with another address, and entries without an end user."""

    missing: int = 0
    outdated: int = 0
    surplus: int = 0

    def __add__(self, other: "Difference") -> "Difference":
        return Difference(self.missing + other.missing, self.outdated + other.outdated, self.surplus + other.surplus)

    @property
    def total(self) -> int:
        return self.missing + self.outdated + self.surplus


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one tenant. `failure` is for operators and contains no personal data."""

    slug: str
    difference: Difference
    failure: str = ""


def index_end_users(
    *,
    only: Sequence[str] = (),
    dry_run: bool = False,
    begun: Callable[[int], None] = lambda total: None,
    progress: Callable[[Outcome], None] = lambda outcome: None,
    until: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Make the index equal to the databases of all tenants, or of the slugs in `only`; return what differed.

    With `dry_run` nothing is changed. A tenant that fails does not stop the others. Can be killed and repeated at any time.
    `until` returns whether to stop early. Raises UnknownTenant (a slug in `only`).
    """
    todo = _todo(only)
    begun(len(todo))
    outcomes = []
    for tenant_id, slug in todo:
        if until():
            break
        difference, failure = Difference(), ""
        try:
            difference = compare(tenant_id, dry_run=dry_run)
        except Exception as problem:
            failure = why(problem)
        outcomes.append(Outcome(slug, difference, failure))
        progress(outcomes[-1])
    if not only and not dry_run:
        _remove_deleted_tenants()
    return outcomes


def _todo(only: Sequence[str]) -> list[tuple[UUID, str]]:
    readable = TenantDatabase.objects.filter(status__in=allowing(Purpose.INSPECT)).order_by("pk")
    if only:
        readable = readable.filter(tenant__slug__in=only)
    mappings = list(readable.values_list("pk", "tenant__slug"))
    if missing := set(only) - {slug for _, slug in mappings}:
        raise UnknownTenant(
            f"No tenant with a readable database has this slug: {', '.join(sorted(missing))}. "
            "`list_tenants` shows them all with their state."
        )
    return mappings


def _remove_deleted_tenants() -> None:
    """Delete entries that a transaction has written while its tenant was being deleted."""
    deleted = TenantDatabase.objects.filter(status=State.DELETED)
    IndexedEndUser.objects.filter(tenant_id__in=deleted.values("pk")).delete()


def compare(
    tenant_id: UUID,
    *,
    dry_run: bool = False,
    size: int = entries.AT_ONCE,
    differing: Callable[[Collection[UUID]], None] = lambda user_ids: None,
) -> Difference:
    """Return what differs between the tenant's database and the index, and unless `dry_run`, correct the index.

    Both are read in the order of the ids, `size` rows at a time; `differing` gets the users of each page whose entries differ.
    Raises UnknownTenant, TenantBusy.
    """
    difference = Difference()
    last: UUID | None = _BEFORE_ALL
    while last is not None:
        # The index first: a user who is erased between the two reads is only in the index, as is right. In the other order a
        # user who is created in between would be taken for an erased one.
        indexed = entries.after(tenant_id, last, size)
        users = _digests_after(tenant_id, last, size)
        last = min((max(page) for page in (indexed, users) if len(page) == size), default=None)
        if last is not None:
            indexed, users = _up_to(last, indexed), _up_to(last, users)
        missing = users.keys() - indexed.keys()
        outdated = {user_id for user_id, digest in users.items() if indexed.get(user_id, digest) != digest}
        surplus = indexed.keys() - users.keys()
        if not dry_run:
            # Accepted race: a user who is erased or gets another address just now, until the next comparison.
            entries.store(tenant_id, {user_id: users[user_id] for user_id in missing | outdated})
            entries.remove(tenant_id, surplus)
        differing(missing | outdated | surplus)
        difference += Difference(len(missing), len(outdated), len(surplus))
    return difference


def _digests_after(tenant_id: UUID, user_id: UUID, size: int) -> dict[UUID, bytes]:
    with in_tenant(tenant_id, Purpose.INSPECT):
        rows: Iterable[tuple[UUID, str]] = (
            EndUser.objects.filter(pk__gt=user_id).order_by("pk").values_list("pk", "email_key")[:size]
        )
        return {pk: entries.digest_of(key) for pk, key in rows}


def _up_to(last: UUID, page: dict[UUID, bytes]) -> dict[UUID, bytes]:
    return {user_id: digest for user_id, digest in page.items() if user_id <= last}


def follow_restore(sender: object, *, tenant_id: UUID, **_: object) -> None:
    """Index a tenant whose database was restored. Errors are logged: the tenant is restored, and the daily run tries again."""
    try:
        compare(tenant_id)
    except Exception as problem:
        log.warning("end_users_not_indexed", tenant=str(tenant_id), cause=why(problem), next="index_end_users")
