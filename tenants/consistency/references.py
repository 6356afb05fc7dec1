"""References to rows of the other kind of database, and foreign keys whose rows are gone."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.apps import apps
from django.conf import settings
from django.db.models import CASCADE, SET_NULL, Count, Exists, ForeignKey, Model, OuterRef, Q
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent
from tenants.consistency.findings import MOST_IDS, Finding
from tenants.entering.router import GLOBAL_ALIAS, lives_in_tenant
from tenants.entering.schema import own_apps
from tenants.entering.target import TENANT_ALIAS


@dataclass(frozen=True, slots=True)
class Reference:
    """A column with ids of rows in the other kind of database.

    `deleted` is the audit action of the platform by which those rows are deleted, if ids of deleted rows may remain; `created`
    is then the column with the time of the referring row, since audit events are kept for a limited time. `among` limits the
    rows at a moment, `pending` returns ids that a job is about to remove.
    """

    model: type[Model]
    column: str
    to: type[Model]
    kind: str
    meaning: str
    remedy: str
    deleted: str = ""
    created: str = "created_at"
    among: Callable[[datetime], Q] = lambda moment: Q()
    pending: Callable[[UUID], Collection[UUID]] = lambda tenant_id: ()
    repair: Callable[[Collection[str]], int] | None = None
    # Whether the rows referred to are of the same tenant.
    of_tenant: bool = True


def oldest_explained() -> datetime:
    """Return since when the audit log of the platform explains every deletion."""
    return now() - timedelta(days=settings.AUDIT_RETENTION_DAYS - 1)


def find_missing(references: Iterable[Reference], tenant_id: UUID) -> Iterator[Finding]:
    """Yield a finding for each reference of the entered tenant whose rows refer to something that does not exist."""
    for reference in references:
        rows = reference.model._base_manager.filter(reference.among(now())).exclude(**{reference.column: None})
        if reference.deleted:
            rows = rows.filter(**{f"{reference.created}__gte": oldest_explained()})
        # The rows first: what they refer to is created before them.
        missing = dict(rows.order_by().values_list(reference.column).annotate(Count("pk")))
        for known in (
            _existing(reference, missing, tenant_id),
            _deleted(reference, missing),
            reference.pending(tenant_id),
        ):
            for known_id in known:
                missing.pop(known_id, None)
        if missing:
            yield Finding(
                reference.kind,
                {str(referred): number for referred, number in sorted(missing.items())[:MOST_IDS]},
                reference.meaning,
                reference.remedy,
                reference.repair,
            )


def _existing(reference: Reference, ids: Collection[UUID], tenant_id: UUID) -> Iterator[UUID]:
    rows = reference.to._base_manager.filter(pk__in=list(ids))
    if reference.of_tenant:
        rows = rows.filter(tenant_id=tenant_id)
    yield from rows.values_list("pk", flat=True)


def _deleted(reference: Reference, ids: Collection[UUID]) -> Iterator[UUID]:
    if reference.deleted and ids:
        events = PlatformEvent.objects.filter(action=reference.deleted, target_id__in=[str(row_id) for row_id in ids])
        yield from (UUID(target) for target in events.values_list("target_id", flat=True))


def find_orphans(*, of_tenants: bool) -> Iterator[Finding]:
    """Find rows whose foreign key leads nowhere: PostgreSQL allows none, unless its checks were disabled."""
    app_labels = set(own_apps())
    for model in apps.get_models(include_auto_created=True):
        if model._meta.app_label not in app_labels or not model._meta.managed or lives_in_tenant(model) != of_tenants:
            continue
        for column in model._meta.concrete_fields:
            if isinstance(column, ForeignKey):
                yield from _orphans_of(model, column)


def _orphans_of(model: type[Model], column: "ForeignKey[Any, Any]") -> Iterator[Finding]:
    target: Any = column.related_model
    lost = model._base_manager.exclude(**{column.attname: None}).filter(
        ~Exists(target._base_manager.filter(**{column.target_field.attname: OuterRef(column.attname)}))
    )
    rows = {_text(pk): 1 for pk in lost.values_list("pk", flat=True)[:MOST_IDS]}
    if not rows:
        return
    on_delete = column.remote_field.on_delete

    def repair(ids: Collection[str]) -> int:
        if on_delete is SET_NULL:
            return lost.all().update(**{column.attname: None})
        return lost.all().delete()[0]

    remedies: dict[object, str] = {
        CASCADE: "--repair deletes them, as the deletion would have.",
        SET_NULL: "--repair removes the reference.",
    }
    yield Finding(
        f"orphaned rows of {model._meta.db_table}.{column.column}",
        rows,
        f"The rows that they refer to, in {target._meta.db_table}, are gone.",
        remedies.get(on_delete, "Restore the database from a backup."),
        repair if on_delete in remedies else None,
        TENANT_ALIAS if lives_in_tenant(model) else GLOBAL_ALIAS,
    )


def _text(pk: object) -> str:
    return bytes(pk).hex()[:16] if isinstance(pk, bytes | memoryview) else str(pk)
