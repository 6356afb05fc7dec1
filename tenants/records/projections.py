"""Write a change of a tenant, or of a row that belongs to it, into the tenant's database and into the global one.

A change locks the tenant's row in the global database, writes the copy into the tenant's database and commits it there; then
the global transaction commits. Both have the same `revision`, one more than before. A crash between the two commits leaves
the copy one revision ahead: the next change and `tenants.records.reconciling` write the global row again with a higher
revision. A copy that is further ahead, or of an earlier epoch, has changes that the global database has lost: it was restored
to an earlier moment, and adopted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar
from uuid import UUID

import structlog
from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError, transaction
from django.db.models import QuerySet
from django.utils.timezone import now
from psycopg import Error as DriverError

from identity_platform.api.errors import Unavailable
from tenants import operating_modes
from tenants.database_servers import fences
from tenants.entering.context import in_tenant
from tenants.entering.target import DatabaseTarget, in_target
from tenants.errors import UnknownTenant
from tenants.failure_reasons import why
from tenants.models import GlobalCopy, Tenant, TenantDatabase
from tenants.states import Purpose, State

log = structlog.get_logger("identity.tenants")

Row = TypeVar("Row", bound=Any)
Value = TypeVar("Value")

# These tenants have no database in use: the job that makes one usable writes all copies.
WITHOUT_DATABASE: Final = frozenset({State.PROVISIONING, State.FAILED, State.DELETING, State.DELETED})
# The database is away or read-only, or has an older schema, or a job is working on it.
_AWAY: Final = (
    Unavailable,
    UnknownTenant,
    OperationalError,
    InterfaceError,
    InternalError,
    ProgrammingError,
    DriverError,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A copy that differs from its global row. A revision is None where there is no copy, or no global row."""

    key: object
    copy_revision: int | None
    revision: int | None
    # The names of the columns that differ.
    columns: tuple[str, ...] = ()
    # Whether the copy has changes that the global database lacks.
    ahead: bool = False
    row: Any = None

    def __str__(self) -> str:
        name = "tenant" if self.key is True else self.key
        columns = f": {', '.join(self.columns)}" if self.columns else ""
        return f"{name} (revision {self.copy_revision or 'none'}, globally {self.revision or 'none'}{columns})"


class Projection(ABC, Generic[Row]):
    """A table of the global database whose rows have copies in the databases of their tenants."""

    copy_model: ClassVar[type[GlobalCopy]]

    @abstractmethod
    def rows_of(self, tenant_id: UUID) -> "QuerySet[Row]":
        """Return the rows of a tenant, each with the tenant's database and server, and with all that its copy has."""

    @abstractmethod
    def mapping(self, row: Row) -> TenantDatabase:
        """Return the database of the row's tenant."""

    @abstractmethod
    def key(self, row: Row) -> object:
        """Return the primary key of the copy."""

    @abstractmethod
    def columns(self, row: Row) -> dict[str, object]:
        """Return the other columns of the copy, by name."""

    def deleted(self, keys: Collection[object]) -> Collection[object]:
        """Return those of the keys whose rows are recorded as deleted."""
        return ()

    @contextmanager
    def changing(
        self, tenant_id: UUID, pk: UUID, *, direct: bool = False, may_lag: bool = False
    ) -> Iterator[Row | None]:
        """Open the global transaction that changes, creates or deletes a row; yield the locked row, None if there is none.

        At the end the copy is written, if any of its columns has changed. Changes of one tenant, and of what belongs to it,
        follow each other. Changes that only take rights away `may_lag`: they succeed while the tenant's database is away. Jobs
        that hold the tenant's lock write `direct`, which they can in a paused tenant too. Raises what `in_tenant` raises
        for Purpose.RECORD, and errors of the tenant's database; then nothing has changed.
        """
        lagging = TenantDatabase.objects.filter(pk=tenant_id, copies_lag=True)
        with transaction.atomic():
            list(Tenant.objects.select_for_update(no_key=True).filter(pk=tenant_id).values_list("pk"))
            rows = self.rows_of(tenant_id).filter(pk=pk)
            # The release before locks this row only.
            row = rows.select_for_update(of=("self",), no_key=True).first()
            # Before the caller changes the row in place, or deletes it.
            before = None if row is None else deepcopy(self.columns(row))
            removal = None if row is None else partial(self._remove, self.key(row), self.mapping(row))
            yield row
            after = rows.first()
            if after is None:
                if removal is not None:
                    removal(direct=direct, may_lag=may_lag)
            elif self.columns(after) != before:
                revision = after.revision if row is None else after.revision + 1
                self._store(after, revision, direct=direct, may_lag=may_lag)
        if may_lag and lagging.exists():
            # Until all processes have read it: after that no request is served before the copies are written.
            operating_modes.wait_until_read()

    def differences(self, tenant_id: UUID) -> list[Difference]:
        """Compare the copies in the entered tenant with the global rows."""
        copies = {copy.pk: copy for copy in self.copy_model._base_manager.all()}
        rows = {self.key(row): row for row in self.rows_of(tenant_id)}
        deleted = self.deleted(copies.keys() - rows.keys())
        compared = [
            self._compared(key, None if key in deleted else copies.get(key), rows.get(key))
            for key in sorted(copies.keys() | rows.keys(), key=str)
        ]
        return [difference for difference in compared if difference is not None]

    def _compared(self, key: object, copy: Any, row: Row | None) -> Difference | None:
        if copy is None or row is None:
            return Difference(key, copy and copy.revision, row and row.revision, ahead=_is_ahead(copy, 0), row=row)
        differing = tuple(name for name, value in self.columns(row).items() if getattr(copy, name) != value)
        if not differing and copy.revision == row.revision:
            return None
        return Difference(key, copy.revision, row.revision, differing, ahead=_is_ahead(copy, row.revision), row=row)

    def apply(self, tenant_id: UUID, *, direct: bool = False, newer: bool = False) -> int:
        """Write the tenant's global rows over the copies that differ; return how many copies were written.

        Copies that are ahead stay, unless `newer`: then the caller has decided that the global rows are valid. Raises what
        `changing` raises.
        """
        written = 0
        with transaction.atomic():
            list(Tenant.objects.select_for_update(no_key=True).filter(pk=tenant_id).values_list("pk"))
            mapping = TenantDatabase.objects.select_related("server").filter(pk=tenant_id).first()
            if mapping is None or mapping.status in WITHOUT_DATABASE:
                return 0
            with entered(mapping, direct=direct):
                for difference in self.differences(tenant_id):
                    if difference.ahead and not newer:
                        continue
                    if difference.row is None:
                        self._remove(difference.key, mapping, direct=direct)
                    else:
                        self._store(difference.row, difference.row.revision, direct=direct)
                    written += 1
        return written

    def _store(self, row: Row, revision: int, *, direct: bool, may_lag: bool = False) -> None:
        """Write the copy with this revision, or a higher one than it has, and set that of the global row to it."""
        write = partial(self._write, self.key(row), self.columns(row), revision)
        written = _in_database(self.mapping(row), write, direct=direct, may_lag=may_lag)
        # If it lags, the copy may have this revision already: of a process that was killed between its two commits.
        stored = revision + 1 if written is None else written
        if stored != row.revision:
            type(row)._base_manager.filter(pk=row.pk).update(revision=stored)

    def _write(self, key: object, columns: dict[str, object], revision: int) -> int:
        columns |= {"applied_at": now(), "applied_epoch": fences.own_mark()[1]}
        copies = self.copy_model._base_manager.filter(pk=key)
        present = copies.values_list("revision", flat=True).first()
        if present is None:
            copy = self.copy_model(**columns, revision=revision)
            copy.pk = key
            copy.save(force_insert=True)
            return revision
        if present > revision:
            log.warning("newer_copy_overwritten", table=self.copy_model._meta.db_table, key=str(key), revision=present)
        revision = max(revision, present + 1)
        copies.update(**columns, revision=revision)
        return revision

    def _remove(self, key: object, mapping: TenantDatabase, *, direct: bool, may_lag: bool = False) -> None:
        _in_database(mapping, self.copy_model._base_manager.filter(pk=key).delete, direct=direct, may_lag=may_lag)


def _is_ahead(copy: Any, revision: int) -> bool:
    """Return whether the copy is not only that of a change that was interrupted between its two commits."""
    if copy is None or copy.revision <= revision:
        return False
    return bool(copy.revision > revision + 1 or copy.applied_epoch < fences.own_mark()[1])


def _in_database(mapping: TenantDatabase, write: Callable[[], Value], *, direct: bool, may_lag: bool) -> Value | None:
    """Return what `write` returns in the tenant's database; None if it has none, or if that is away and `may_lag`."""
    if mapping.status in WITHOUT_DATABASE:
        return None
    try:
        with entered(mapping, direct=direct):
            return write()
    except _AWAY as problem:
        if not may_lag:
            raise
        # With an older schema, migrate_tenants writes it.
        if not isinstance(problem, ProgrammingError):
            log.warning("record_lags", tenant=str(mapping.pk), cause=why(problem), next="apply_records")
        # In the transaction of the change: until all copies are written.
        TenantDatabase.objects.filter(pk=mapping.pk).update(copies_lag=True)
        return None


def entered(mapping: TenantDatabase, *, direct: bool) -> AbstractContextManager[object]:
    """Enter the tenant's database: for Purpose.RECORD, or `direct` in any state, with one connection for the whole block."""
    if not direct:
        return in_tenant(mapping.pk, Purpose.RECORD)
    server = mapping.server
    return in_target(DatabaseTarget(server.pk, server.revision, mapping.name, direct=True, tenant_id=mapping.pk))
