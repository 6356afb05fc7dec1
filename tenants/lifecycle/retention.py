"""Delete expired rows of every database, and old events of the audit trails.

A model defines which rows are expired with a class method `expired(moment) -> Q`. Models without it are never purged.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, cast

from django.apps import apps
from django.db import transaction
from django.db.models import CharField, Model, Q
from django.db.models.functions import Cast
from django.utils.timezone import now

from identity_platform.audit.models import ChainHead
from identity_platform.postgresql.statement_timeout import no_timeout
from identity_platform.postgresql.transactions import lift_timeouts
from tenants.entering.router import GLOBAL_ALIAS, lives_in_tenant
from tenants.journals import audit_trails
from tenants.journals.audit_trails import Owner, TrailUnreachable, opened, reachable
from tenants.lifecycle import final_backups
from tenants.models import TenantDatabase
from tenants.states import State

AT_ONCE = 1000


class Expiring(Protocol):
    """A model whose rows expire."""

    @classmethod
    def expired(cls, moment: datetime) -> Q:
        """Return which rows have no more use at this time."""


def expiring_models(*, of_tenants: bool) -> list[type[Model]]:
    """Return the models whose rows expire, of tenant databases or of the global one."""
    return [m for m in apps.get_models() if hasattr(m, "expired") and lives_in_tenant(m) == of_tenants]


@dataclass(slots=True)
class Purged:
    """The numbers of deleted rows of one owner, by kind."""

    owner: Owner
    rows: dict[str, int] = field(default_factory=dict)
    problem: str = ""


def purge(owner: Owner, *, seen: Callable[[int], None] = lambda rows: None) -> Purged:
    """Delete one owner's expired rows and old audit events. Errors are returned, not raised.

    In batches of one short transaction each, so locks are short and a killed run can simply be repeated.
    """
    purged = Purged(owner)
    try:
        with reachable(), opened(owner) as trail:
            for model in expiring_models(of_tenants=owner.tenant_id is not None):
                if number := _purge_model(model, trail.alias if owner.tenant_id else GLOBAL_ALIAS, seen):
                    purged.rows[str(model._meta.verbose_name_plural)] = number
        if number := audit_trails.purge(owner, seen=seen):
            purged.rows["audit events"] = number
        if owner.tenant_id is None and (number := _purge_ends_of_deleted()):
            purged.rows["ends of deleted tenants' trails"] = number
        with reachable():
            if owner.tenant_id is None and (number := final_backups.expire()):
                purged.rows["final backups"] = number
    except TrailUnreachable as problem:
        purged.problem = str(problem)
    return purged


def purge_all(*, until: Callable[[], bool] = lambda: False) -> list[str]:
    """Purge the platform and every tenant; return error messages. `until` returns whether to stop."""
    problems = []
    for owner in audit_trails.owners():
        if until():
            break
        purged = purge(owner)
        if purged.problem:
            problems.append(f"{owner.name}: {purged.problem}")
    return problems


def _purge_ends_of_deleted() -> int:
    """Delete chain ends that a sealer wrote while its tenant was being deleted."""
    deleted = TenantDatabase.objects.filter(status=State.DELETED).annotate(owner=Cast("tenant_id", CharField()))
    number, _ = ChainHead.objects.filter(owner__in=deleted.values("owner")).delete()
    return number


def _purge_model(model: type[Model], alias: str, seen: Callable[[int], None]) -> int:
    expired = cast(Expiring, model).expired(now())
    total = 0
    while True:
        with no_timeout(), transaction.atomic(using=alias):
            # Some tables have no index on the time, so the last look reads all of them.
            lift_timeouts(alias)
            # By primary key, so that a batch has a fixed size.
            keys = list(model._base_manager.filter(expired).values_list("pk", flat=True)[:AT_ONCE])
            if not keys:
                return total
            # With the condition: a session may have been refreshed since.
            gone, by_model = model._base_manager.filter(expired, pk__in=keys).delete()
        total += by_model.get(model._meta.label, 0)
        seen(gone)
        if not gone:
            return total
