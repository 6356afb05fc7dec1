"""Look up a tenant: its state, settings and database. One statement, cached until the request ends.

Tenants are not cached across requests. Suspending, moving or deleting a tenant must count from the next request on, in every
process on every host; an invalidation message can get lost, and the statement is a primary-key look-up. Token verification
reads the same columns together with the caller's state, so an authenticated request pays nothing extra
(`userflow.sessions.verify`).
"""

import re
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.db import connection, connections

from identity_platform.audit.origin import set_tenant
from identity_platform.postgresql.statements import fetch_row
from identity_platform.semaphore import Semaphore
from tenants import operating_modes
from tenants.entering.target import TENANT_ALIAS, DatabaseTarget
from tenants.errors import TenantBusy, TenantSuspended, UnknownTenant
from tenants.settings.declarations import EffectiveSettings
from tenants.settings.page_addresses import PageAddress
from tenants.settings.values import defaults, effective
from tenants.states import ALLOWED, Purpose, State

GONE = frozenset({State.DELETED, State.DELETING})
# A migration and the end of an online move take less than a second.
PAUSED = frozenset({State.MIGRATING, State.MOVING})
_POLL_SECONDS: Final = 0.05
# After a wait in vain, for a job that takes longer, requests of that tenant do not wait for so long.
_LONG_JOB_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class TenantContext:
    """A tenant as a request sees it."""

    tenant_id: UUID
    slug: str
    name: str
    status: State
    database: str
    server_id: int
    server_revision: int
    settings: dict[str, object]
    # Without webhooks, recording an event skips the outbox.
    has_webhooks: bool = False
    # The domain of its own that its issuer, endpoints and pages are on.
    sign_in_domain: str | None = None

    @property
    def root(self) -> str:
        """The address that the paths of the tenant's pages and endpoints follow."""
        return PageAddress(self.slug, self.sign_in_domain).root

    @property
    def root_path(self) -> str:
        """The path of that address, on the host of the tenant's pages."""
        return "" if self.sign_in_domain else f"/t/{self.slug}"

    @property
    def target(self) -> DatabaseTarget:
        """The tenant's database."""
        return DatabaseTarget(self.server_id, self.server_revision, self.database, tenant_id=self.tenant_id)

    @property
    def effective(self) -> EffectiveSettings:
        """The values of the settings that apply in this tenant."""
        return effective(self.settings, tenant_name=self.name, slug=self.slug, domain=self.sign_in_domain)

    @property
    def authorities(self) -> str:
        """Return the authorities (PEM) that calls to what the tenant has configured trust beside the others."""
        return str(self.settings.get("outbound_authorities") or "")

    @property
    def defaults(self) -> dict[str, object]:
        """The values that would apply without settings of its own."""
        return defaults(self.settings, tenant_name=self.name, slug=self.slug, domain=self.sign_in_domain)

    def allows(self, purpose: Purpose) -> bool:
        """Return whether the state and the operating modes allow this."""
        return purpose in ALLOWED[self.status] and operating_modes.rejection(purpose, self.server_id) is None

    def check(self, purpose: Purpose) -> "TenantContext":
        """Return the tenant in a state that allows this; of a request, after the end of a job that takes a moment.

        Raises UnknownTenant, TenantSuspended, TenantBusy, ReadOnlyMode.
        """
        tenant = self
        if purpose not in ALLOWED[tenant.status] and tenant.status in PAUSED:
            tenant = _after_pause(tenant)
        if purpose in ALLOWED[tenant.status]:
            operating_modes.check(purpose, tenant.server_id)
            return tenant
        if tenant.status in GONE:
            raise UnknownTenant
        raise TenantSuspended if tenant.status is State.SUSPENDED else TenantBusy


class Row(NamedTuple):
    """What COLUMNS return."""

    tenant_id: UUID
    slug: str
    name: str
    status: str
    database: str
    server_id: int
    server_revision: int
    settings: str
    has_webhooks: bool
    sign_in_domain: str | None


# The columns of a TenantContext, for statements that read the caller in the same round trip.
COLUMNS = (
    "t.id, t.slug, t.name, d.status, d.name, d.server_id, s.revision, t.settings::text,"
    " EXISTS (SELECT FROM tenants_webhooktenant w WHERE w.tenant_id = t.id),"
    " (SELECT c.domain FROM tenants_domainclaim c WHERE c.tenant_id = t.id AND c.sign_in)"
)
JOINS = "JOIN tenants_tenantdatabase d ON d.tenant_id = t.id JOIN tenants_databaseserver s ON s.id = d.server_id"
WIDTH = len(Row._fields)

_SLUG = re.compile(r"[A-Za-z0-9-]{1,63}")

_seen: ContextVar[dict[UUID, TenantContext] | None] = ContextVar("tenants_of_this_request", default=None)


# The other threads stay free for requests of other tenants.
_waiting = Semaphore("tenant_pause", max(1, settings.WEB_THREADS // 2), TenantBusy)
_long_jobs: dict[UUID, float] = {}


def from_row(columns: Iterable[Any]) -> TenantContext:
    """Return the tenant of a row of COLUMNS."""
    row = Row._make(columns)
    return TenantContext(
        row.tenant_id,
        row.slug,
        row.name,
        State(row.status),
        row.database,
        row.server_id,
        row.server_revision,
        orjson.loads(row.settings),
        row.has_webhooks,
        row.sign_in_domain,
    )


def remember(tenant: TenantContext) -> TenantContext:
    """Cache the tenant until the request ends."""
    seen = _seen.get()
    if seen is not None:
        seen[tenant.tenant_id] = tenant
        set_tenant(tenant.tenant_id)
    return tenant


def find(tenant_id: UUID) -> TenantContext:
    """Return the tenant. Raises UnknownTenant, also for a deleted one."""
    seen = _seen.get()
    if seen is not None and tenant_id in seen:
        return seen[tenant_id]
    return _read("t.id = %s", tenant_id)


def may_be_slug(text: str) -> bool:
    """Return whether a tenant can have this slug, in any case: PostgreSQL rejects texts with NUL or half characters."""
    return _SLUG.fullmatch(text) is not None


def find_by_slug(slug: str) -> TenantContext:
    """Return the tenant of this slug, in any case, or that had it before. Raises UnknownTenant, also for a deleted one."""
    if not may_be_slug(slug):
        raise UnknownTenant
    try:
        return _read("lower(t.slug) = lower(%s)", slug)
    except UnknownTenant:
        return _read("t.id = (SELECT tenant_id FROM tenants_formerslug WHERE slug = lower(%s))", slug)


def find_by_domain(domain: str) -> TenantContext:
    """Return the tenant whose sign-in domain this is, in the form of DNS, or was while the tenant still has the domain.

    Raises UnknownTenant, also for a deleted one.
    """
    served = "domain = %s AND (sign_in OR sign_in_ended_at IS NOT NULL)"
    return _read(f"t.id = (SELECT tenant_id FROM tenants_domainclaim WHERE {served})", domain)


def _read(condition: str, value: UUID | str) -> TenantContext:
    row = fetch_row("default", f"SELECT {COLUMNS} FROM tenants_tenant t {JOINS} WHERE {condition}", [value])
    if row is None:
        raise UnknownTenant
    tenant = from_row(row)
    if tenant.status in GONE:
        raise UnknownTenant
    return remember(tenant)


def _after_pause(tenant: TenantContext) -> TenantContext:
    """Return the tenant as it is after its job, or after TENANT_PAUSE_WAIT_MS. Raises UnknownTenant, TenantBusy."""
    began, longest = time.monotonic(), settings.TENANT_PAUSE_WAIT_MS / 1000
    # The job may itself wait for the locks of a transaction.
    in_transaction = connection.in_atomic_block or connections[TENANT_ALIAS].in_atomic_block
    is_request = _seen.get() is not None
    if not (longest and is_request) or in_transaction or began < _long_jobs.get(tenant.tenant_id, 0.0):
        return tenant
    with _waiting.acquire():
        while tenant.status in PAUSED:
            if time.monotonic() >= began + longest:
                _remember_long_job(tenant.tenant_id)
                break
            time.sleep(_POLL_SECONDS)
            tenant = _read("t.id = %s", tenant.tenant_id)
    return tenant


def _remember_long_job(tenant_id: UUID) -> None:
    now = time.monotonic()
    for known in [known for known, end in _long_jobs.copy().items() if end <= now]:
        _long_jobs.pop(known, None)
    _long_jobs[tenant_id] = now + _LONG_JOB_SECONDS


def forget() -> None:
    """Clear the cache, after a change of state in the same request."""
    if _seen.get() is not None:
        _seen.set({})


def cache_per_request() -> None:
    """Start the cache with each request and drop it at its end."""
    request_started.connect(lambda **_: _seen.set({}), weak=False, dispatch_uid="tenants.entering.lookup.begin")
    request_finished.connect(lambda **_: _seen.set(None), weak=False, dispatch_uid="tenants.entering.lookup.end")
