"""Entering a tenant: the ContextVars that carry it, and what fails when no tenant is entered."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from uuid import UUID

import structlog
from django.db import ProgrammingError, transaction
from psycopg.errors import UndefinedColumn, UndefinedFunction, UndefinedTable

from identity_platform.postgresql.forbidden_writes import forbid_writes
from tenants import operating_modes
from tenants.entering import lookup
from tenants.entering.lookup import TenantContext
from tenants.entering.target import TENANT_ALIAS, current_target, in_target, take_noted
from tenants.errors import NoActiveTenant, TenantBehind
from tenants.signals import rows_noted
from tenants.states import Purpose

log = structlog.get_logger("identity.tenants")

_MISSING_IN_SCHEMA = (UndefinedColumn, UndefinedFunction, UndefinedTable)
_entered: ContextVar[TenantContext | None] = ContextVar("tenant_context", default=None)


def current_tenant() -> TenantContext:
    """Return the tenant that is entered. Raises NoActiveTenant."""
    target, tenant = current_target(), _entered.get()
    if tenant is None or tenant.tenant_id != target.tenant_id:
        raise NoActiveTenant("A database is entered for maintenance, not for a tenant.")
    return tenant


@contextmanager
def in_tenant(tenant_id: UUID, purpose: Purpose = Purpose.WRITE) -> Iterator[TenantContext]:
    """Enter a tenant: inside the block, tenant models use its database. No connection is opened before the first statement.

    Raises UnknownTenant, TenantSuspended, TenantBusy, ReadOnlyMode; TenantBehind when a statement fails because the database
    lacks migrations of this release.
    """
    tenant = lookup.find(tenant_id).check(purpose)
    token = _entered.set(tenant)
    try:
        # Statements that write for a purpose that is allowed: reads that leave a trace.
        error = operating_modes.error_of_writes(tenant.server_id)
        with in_target(tenant.target), forbid_writes(error, TENANT_ALIAS) if error else nullcontext():
            yield tenant
    except ProgrammingError as problem:
        # Checked only after a failure, so successful requests pay nothing.
        if isinstance(problem.__cause__, _MISSING_IN_SCHEMA) and lookup.is_behind(tenant_id):
            log.warning("tenant_behind", tenant=str(tenant_id), next="run migrate_tenants")
            raise TenantBehind from problem
        raise
    finally:
        _entered.reset(token)
        for noted in take_noted():
            rows_noted.send(sender=in_tenant, tenant_id=noted)


def tenant_atomic() -> AbstractContextManager[None]:
    """Open a transaction in the tenant's database. Django's bare `atomic()` opens one in the global database."""
    current_target()
    return transaction.atomic(using=TENANT_ALIAS)
