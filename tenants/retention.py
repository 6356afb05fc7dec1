"""Letting go of what has had its time: expired rows of every database, and old events of the audit trails.

A model says itself when its rows are over, by a class method `expired(moment) -> Q`; nobody else knows its columns. What
says nothing is kept.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from django.apps import apps
from django.db import transaction
from django.db.models import CharField, Model, Q
from django.db.models.functions import Cast
from django.utils.timezone import now

from identity_platform.audit.models import ChainHead
from tenants import audit_trails, final_backups
from tenants.audit_trails import Owner, TrailUnreachable, opened, reachable
from tenants.models import TenantDatabase
from tenants.router import GLOBAL_ALIAS, lives_in_tenant
from tenants.states import State

AT_ONCE = 1000


class Passing(Protocol):
    """A model whose rows pass."""

    @classmethod
    def expired(cls, moment: Any) -> Q:
        """Which rows nobody can use any more at this moment."""


def passing_models(*, of_tenants: bool) -> list[type[Model]]:
    """The models that say when their rows are over, of tenant databases or of the global one."""
    return [m for m in apps.get_models() if hasattr(m, "expired") and lives_in_tenant(m) == of_tenants]


@dataclass(slots=True)
class Purged:
    """What was let go of one owner, by kind of record."""

    owner: Owner
    rows: dict[str, int] = field(default_factory=dict)
    problem: str = ""


def purge(owner: Owner, *, seen: Callable[[int], None] = lambda rows: None) -> Purged:
    """Let go of one owner's expired rows and old audit events; problems end up in the answer, not in an exception.

    In batches of one short transaction each: nothing waits long for a lock, and what a killed run has not reached the
    next one does.
    """
    purged = Purged(owner)
    try:
        with reachable(), opened(owner) as trail:
            for model in passing_models(of_tenants=owner.tenant_id is not None):
                if number := _purge_model(model, trail.alias if owner.tenant_id else GLOBAL_ALIAS, seen):
                    purged.rows[str(model._meta.verbose_name_plural)] = number
        if number := audit_trails.purge(owner, seen=seen):
            purged.rows["audit events"] = number
        if owner.tenant_id is None and (number := _forget_ends_of_deleted()):
            purged.rows["ends of deleted tenants' trails"] = number
        with reachable():
            if owner.tenant_id is None and (number := final_backups.expire()):
                purged.rows["final backups"] = number
    except TrailUnreachable as problem:
        purged.problem = str(problem)
    return purged


def purge_all(*, until: Callable[[], bool] = lambda: False) -> list[str]:
    """Purge the platform and every tenant, one after the other, until told to end; gives what failed."""
    problems = []
    for owner in audit_trails.owners():
        if until():
            break
        purged = purge(owner)
        if purged.problem:
            problems.append(f"{owner.name}: {purged.problem}")
    return problems


def _forget_ends_of_deleted() -> int:
    """A sealer that was at work while its tenant was deleted has written its newest link down afterwards."""
    deleted = TenantDatabase.objects.filter(status=State.DELETED).annotate(owner=Cast("tenant_id", CharField()))
    number, _ = ChainHead.objects.filter(owner__in=deleted.values("owner")).delete()
    return number


def _purge_model(model: type[Model], alias: str, seen: Callable[[int], None]) -> int:
    over = cast(Passing, model).expired(now())
    total = 0
    while True:
        # The rows are named first: deleting by a condition would take whatever falls under it meanwhile.
        keys: Iterable[Any] = list(model._base_manager.filter(over).values_list("pk", flat=True)[:AT_ONCE])
        if not keys:
            return total
        with transaction.atomic(using=alias):
            # The condition again: a session may have been refreshed since.
            gone, by_model = model._base_manager.filter(over, pk__in=keys).delete()
        total += by_model.get(model._meta.label, 0)
        seen(gone)
        if not gone:
            return total
