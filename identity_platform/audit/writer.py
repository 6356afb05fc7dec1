"""Write audit events: one INSERT, in the open transaction if there is one.

The event of a change belongs into the transaction of the change. The event of a rejection must survive the error, so it
is written outside `tenant_atomic()`.
"""

from collections.abc import Collection, Mapping
from functools import partial
from uuid import UUID

import orjson
from django.db import transaction
from prometheus_client import Counter

from identity_platform.audit.origin import current_origin
from identity_platform.postgresql.statements import execute
from identity_platform.postgresql.values import SqlValue

# Sign-ins are `signin.succeeded` and `signin.refused`. Actions are literals, so their number is bounded.
EVENTS = Counter("identity_audit_events", "Audit events by action and outcome.", ["action", "outcome"])

_COLUMNS = "action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id, details"
_VALUES = (
    "%(action)s, %(outcome)s, %(actor_kind)s, %(actor_id)s, %(target_kind)s, %(target_id)s, %(address)s, %(request_id)s,"
    " %(details)s"
)
_FOR_TENANT = f"INSERT INTO audit_tenantevent ({_COLUMNS}) VALUES ({_VALUES})"
_FOR_PLATFORM = f"INSERT INTO audit_platformevent ({_COLUMNS}, tenant_id) VALUES ({_VALUES}, %(tenant_id)s)"
# One statement for any number of rows: a call that reads many secrets must not make as many round trips.
_EACH = _VALUES.replace("%(target_id)s", "each.target_id")
_TARGETS = "unnest(%(target_ids)s::text[]) AS each(target_id)"
_FOR_EACH_IN_TENANT = f"INSERT INTO audit_tenantevent ({_COLUMNS}) SELECT {_EACH} FROM {_TARGETS}"
_FOR_EACH_ON_PLATFORM = (
    f"INSERT INTO audit_platformevent ({_COLUMNS}, tenant_id) SELECT {_EACH}, %(tenant_id)s FROM {_TARGETS}"
)


def _values(
    action: str, outcome: str, target: tuple[str, object] | None, details: Mapping[str, object] | None
) -> dict[str, SqlValue]:
    kind, target_id = target or ("", "")
    return {
        "action": action,
        "outcome": outcome,
        **current_origin().audit_columns(),
        "target_kind": kind,
        "target_id": str(target_id),
        "details": orjson.dumps(details or {}, default=str).decode(),
    }


def count_events(alias: str, action: str, outcome: str = "success", number: int = 1) -> None:
    """Count events for /metrics once the open transaction is committed, if there is one.

    For statements that write their event themselves; the functions below count what they write.
    """
    transaction.on_commit(partial(EVENTS.labels(action, outcome).inc, number), using=alias)


def record_for_tenant(
    action: str,
    *,
    target: tuple[str, object] | None = None,
    outcome: str = "success",
    details: Mapping[str, object] | None = None,
) -> None:
    """Write one event to the audit trail of the entered tenant.

    Takes the action (`noun.verb`), the target as (kind, id), the outcome and details that hold no personal data.
    """
    execute("tenant", _FOR_TENANT, _values(action, outcome, target, details))
    count_events("tenant", action, outcome)


def record_for_each_in_tenant(
    action: str, *, kind: str, ids: Collection[object], details: Mapping[str, object] | None = None
) -> None:
    """Write one event for each target of a kind, in one statement, so that a user's id finds all the user's events."""
    values = _values(action, "success", (kind, ""), details) | {"target_ids": [str(target_id) for target_id in ids]}
    execute("tenant", _FOR_EACH_IN_TENANT, values)
    count_events("tenant", action, number=len(ids))


def record_for_platform(
    action: str,
    *,
    tenant_id: UUID | None = None,
    target: tuple[str, object] | None = None,
    outcome: str = "success",
    details: Mapping[str, object] | None = None,
) -> None:
    """Write one event to the platform's audit trail. `tenant_id` is the tenant that it concerns, if any."""
    execute("default", _FOR_PLATFORM, _values(action, outcome, target, details) | {"tenant_id": tenant_id})
    count_events("default", action, outcome)


def record_for_each_on_platform(
    action: str,
    *,
    tenant_id: UUID | None,
    kind: str,
    ids: Collection[object],
    outcome: str = "success",
    details: Mapping[str, object] | None = None,
) -> None:
    """Write one event for each target to the platform's audit trail, likewise."""
    values = _values(action, outcome, (kind, ""), details)
    values |= {"tenant_id": tenant_id, "target_ids": [str(target_id) for target_id in ids]}
    execute("default", _FOR_EACH_ON_PLATFORM, values)
    count_events("default", action, outcome, len(ids))
