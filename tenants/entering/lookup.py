"""Look up a tenant: its state, settings and database. One statement, cached until the request ends.

Tenants are not cached across requests. Suspending, moving or deleting a tenant must count from the next request on, in every
process on every host; an invalidation message can get lost, and the statement is a primary-key look-up.

Requests of end users and applications read the record in the tenant's own database, and no other database; only where that is
depends on what was read before (`tenants.entering.routes`). Token verification reads it together with the caller's state, so an
authenticated request pays nothing extra (`userflow.sessions.verify`). Requests of operators and tenant admins, jobs and
commands read the global row.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
import structlog
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.db import InterfaceError, OperationalError, ProgrammingError, connection, connections
from psycopg.errors import UndefinedColumn, UndefinedFunction, UndefinedTable

from identity_platform.api.errors import Unavailable
from identity_platform.audit.origin import set_tenant
from identity_platform.postgresql.statements import fetch_row
from identity_platform.semaphore import Semaphore
from tenants import operating_modes
from tenants.entering import routes
from tenants.entering.schema import schema_version
from tenants.entering.target import TENANT_ALIAS, DatabaseTarget, entered_target, in_target
from tenants.errors import ForeignDatabase, TenantBehind, TenantBusy, TenantSuspended, UnknownTenant
from tenants.models import TenantDatabase
from tenants.settings.declarations import EffectiveSettings
from tenants.settings.page_addresses import PageAddress
from tenants.settings.values import defaults, effective
from tenants.signals import copies_needed
from tenants.states import ALLOWED, Purpose, State

log = structlog.get_logger("identity.tenants")

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

# The same of the record `r` in the tenant's own database, without its place.
RECORD_COLUMNS: Final = (
    "r.tenant_id, r.slug, r.name, r.status, r.settings::text, r.has_webhooks, r.sign_in_domain, r.placement_revision"
)
RECORD_TABLE: Final = "tenants_tenantrecord"
_RECORD_WIDTH: Final = 8
_MISSING_IN_SCHEMA: Final = (UndefinedColumn, UndefinedFunction, UndefinedTable)

_SLUG = re.compile(r"[A-Za-z0-9-]{1,63}")

_TENANT_OF_SLUG: Final = """
SELECT id FROM tenants_tenant WHERE lower(slug) = %s UNION ALL SELECT tenant_id FROM tenants_formerslug WHERE slug = %s LIMIT 1
"""
_TENANT_OF_DOMAIN: Final = (
    "SELECT tenant_id FROM tenants_domainclaim WHERE domain = %s AND (sign_in OR sign_in_ended_at IS NOT NULL)"
)


@dataclass(slots=True)
class _Request:
    """What a request has looked up."""

    tenants: dict[UUID, TenantContext] = field(default_factory=dict)
    # Whether its caller is an operator or a tenant admin.
    is_managing: bool = False


_request: ContextVar[_Request | None] = ContextVar("tenants_of_this_request", default=None)


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
    request = _request.get()
    if request is not None:
        request.tenants[tenant.tenant_id] = tenant
        set_tenant(tenant.tenant_id)
    return tenant


def manage() -> None:
    """Let the rest of this request read global rows: an operator or a tenant admin has sent it."""
    request = _request.get()
    if request is not None:
        request.is_managing = True


def is_managing() -> bool:
    """Return whether a request of an operator or a tenant admin, a job or a command runs here, and no other request."""
    request = _request.get()
    return request is None or request.is_managing


def find(tenant_id: UUID) -> TenantContext:
    """Return the tenant by its global row; in a request of an end user, an application or unknown caller by its database.

    Raises UnknownTenant, also for a deleted one, and what `read_with_record` raises.
    """
    if is_managing():
        return find_row(tenant_id)
    request = _request.get()
    if request is not None and tenant_id in request.tenants:
        return request.tenants[tenant_id]
    return remember(read_with_record(tenant_id, f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLE} r")[0])


def find_row(tenant_id: UUID) -> TenantContext:
    """Return the tenant by its global row, for admins who are not signed in yet. Raises UnknownTenant."""
    request = _request.get()
    if request is not None and tenant_id in request.tenants:
        return request.tenants[tenant_id]
    return _read("t.id = %s", tenant_id)


def read_with_record(
    tenant_id: UUID, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()
) -> tuple[TenantContext, Sequence[Any]]:
    """Execute a SELECT in the tenant's database that begins with RECORD_COLUMNS, of RECORD_TABLE `r`, and returns one row.

    Returns the tenant, in any state but those without a database, and the other columns. The tenant is not remembered. Raises
    UnknownTenant, TenantBusy (without a database), TenantBehind, ForeignDatabase, and the errors of the tenant's database.
    """
    entered = entered_target()
    if entered is not None and entered.tenant_id == tenant_id and not entered.direct:
        # Perhaps inside a transaction. Where the tenant is was found out when it was entered.
        tenant, columns = _read_at(None, entered, tenant_id, statement, values)
        assert tenant is not None  # without a route
        return tenant, columns
    if operating_modes.copies_lag(tenant_id):
        copies_needed.send(sender=read_with_record, tenant_id=tenant_id)
    route = routes.route_to(tenant_id)
    try:
        tenant, columns = _read_at(route, route.target(tenant_id), tenant_id, statement, values)
    except (OperationalError, InterfaceError, ForeignDatabase) as problem:
        # The tenant was moved or deleted, or its database is away.
        present = _present_route(tenant_id)
        if present is None or present == route:
            raise
        log.info("route_was_stale", tenant=str(tenant_id), cause=type(problem).__name__)
        tenant, columns = _read_at(present, present.target(tenant_id), tenant_id, statement, values)
    if tenant is None or tenant.status is not State.ACTIVE:
        # A job is working on it, it is suspended, or its former database says so.
        present = _present_route(tenant_id)
        if present is not None and present != route:
            tenant, columns = _read_at(present, present.target(tenant_id), tenant_id, statement, values)
    if tenant is None:
        raise TenantBusy
    return tenant, columns


def _present_route(tenant_id: UUID) -> routes.Route | None:
    """Return where the tenant's database is now, None while the global database is away."""
    try:
        return routes.read_again(tenant_id)
    except (OperationalError, InterfaceError):
        connection.close_if_unusable_or_obsolete()
        return None


def _read_at(
    route: routes.Route | None,
    target: DatabaseTarget,
    tenant_id: UUID,
    statement: str,
    values: Sequence[Any] | Mapping[str, Any],
) -> tuple[TenantContext | None, Sequence[Any]]:
    """Return the tenant and the other columns; None for the tenant if the route leads to a former database of it."""
    row = fetch_at(target, tenant_id, statement, values)
    own_id, slug, name, status, settings_text, has_webhooks, sign_in_domain, placement_revision = row[:_RECORD_WIDTH]
    if own_id != tenant_id:
        raise ForeignDatabase
    if not status:
        # The release before has migrated it, and could not write the record.
        raise TenantBehind
    if route is not None and placement_revision != route.placement_revision:
        return None, ()
    tenant = TenantContext(
        tenant_id,
        slug,
        name,
        State(status),
        target.database,
        target.server_id,
        target.server_revision,
        orjson.loads(settings_text),
        has_webhooks,
        sign_in_domain,
    )
    return tenant, row[_RECORD_WIDTH:]


def fetch_at(target: DatabaseTarget, tenant_id: UUID, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> Any:
    """Return the first row of a statement in a tenant's database, or None.

    Raises TenantBehind if the database lacks migrations of this release, and the errors of the tenant's database.
    """
    try:
        with in_target(target):
            return fetch_row(TENANT_ALIAS, statement, values)
    except ProgrammingError as problem:
        if isinstance(problem.__cause__, _MISSING_IN_SCHEMA) and is_behind(tenant_id):
            log.warning("tenant_behind", tenant=str(tenant_id), next="run migrate_tenants")
            raise TenantBehind from problem
        raise


def is_behind(tenant_id: UUID) -> bool:
    """Return whether the tenant's database has another schema than this release expects."""
    return TenantDatabase.objects.filter(pk=tenant_id).exclude(schema_version=schema_version()).exists()


def may_be_slug(text: str) -> bool:
    """Return whether a tenant can have this slug, in any case: PostgreSQL rejects texts with NUL or half characters."""
    return _SLUG.fullmatch(text) is not None


def find_by_slug(slug: str) -> TenantContext:
    """Return the tenant of this slug, in any case, or that had it before. Raises as `read_with_record`."""
    if not may_be_slug(slug):
        raise UnknownTenant
    name = slug.lower()
    return _named(
        routes.Names.SLUG,
        name,
        partial(_tenant_of_slug, name),
        lambda tenant: tenant.slug.lower() == name,
        # A former slug is reserved to its tenant.
        may_have_had_name=True,
    )


def find_by_domain(domain: str) -> TenantContext:
    """Return the tenant whose sign-in domain this is, in the form of DNS, or was while the tenant still has the domain.

    Raises as `read_with_record`.
    """
    read = partial(_tenant_of_domain, domain)
    return _named(
        routes.Names.DOMAIN,
        domain,
        read,
        lambda tenant: tenant.sign_in_domain == domain or _still_serves(domain, tenant),
        may_have_had_name=False,
    )


def _still_serves(domain: str, tenant: TenantContext) -> bool:
    """Return whether the domain is a former sign-in domain that the tenant still has."""
    statement = f"SELECT %s = ANY(served_domains) FROM {RECORD_TABLE}"
    return bool(fetch_at(tenant.target, tenant.tenant_id, statement, [domain])[0])


def _named(
    names: routes.Names,
    name: str,
    read: Callable[[], UUID | None],
    has_name: Callable[[TenantContext], bool],
    *,
    may_have_had_name: bool,
) -> TenantContext:
    """Return the tenant of a slug or a domain. What it leads to is read again unless the tenant's record has it.

    While the global database is away, a tenant that may have had it before has it still.
    """
    tenant_id = routes.tenant_named(names, name, read)
    if tenant_id is None:
        raise UnknownTenant
    tenant: TenantContext | None = None
    failure: Exception | None = None
    try:
        tenant = find(tenant_id)
        if has_name(tenant):
            return tenant
    except (UnknownTenant, Unavailable, OperationalError, InterfaceError) as problem:
        failure = problem
    # It has another one now, or its database does not respond: the name may be another tenant's.
    try:
        present = routes.named_again(names, name, read)
    except (OperationalError, InterfaceError):
        connection.close_if_unusable_or_obsolete()
        if tenant is None or not may_have_had_name:
            raise
        present = tenant_id
    if present is None:
        raise UnknownTenant
    if failure is not None and present == tenant_id:
        # Not twice at a database that does not respond.
        raise failure
    return find(present)


def tenant_of_client(client_id: UUID) -> UUID | None:
    """Return the tenant that the client belongs to, which never changes; None for an unknown client."""
    return routes.tenant_named(routes.Names.CLIENT, str(client_id), partial(_tenant_of_client, client_id))


def forget_client(client_id: UUID) -> None:
    """Forget the tenant of a client that this tenant does not have: the next request reads it again."""
    routes.forget(routes.Names.CLIENT, str(client_id))


def is_known_domain(domain: str) -> bool:
    """Return whether the domain has led to a tenant, which may not be readable now."""
    return routes.is_known(routes.Names.DOMAIN, domain)


def _tenant_of_slug(slug: str) -> UUID | None:
    row = fetch_row("default", _TENANT_OF_SLUG, [slug, slug])
    return None if row is None else row[0]


def _tenant_of_domain(domain: str) -> UUID | None:
    row = fetch_row("default", _TENANT_OF_DOMAIN, [domain])
    return None if row is None else row[0]


def _tenant_of_client(client_id: UUID) -> UUID | None:
    row = fetch_row("default", "SELECT tenant_id FROM userflow_client WHERE id = %s", [client_id])
    return None if row is None else row[0]


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
    is_request = _request.get() is not None
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
    request = _request.get()
    if request is not None:
        request.tenants.clear()


def cache_per_request() -> None:
    """Start the cache with each request and drop it at its end."""
    request_started.connect(
        lambda **_: _request.set(_Request()), weak=False, dispatch_uid="tenants.entering.lookup.begin"
    )
    request_finished.connect(lambda **_: _request.set(None), weak=False, dispatch_uid="tenants.entering.lookup.end")
