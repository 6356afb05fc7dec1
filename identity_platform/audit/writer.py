"""Writes the audit trail: one INSERT, in the transaction that is open, or at once where none is.

A row about something done belongs into the transaction of the deed. A row about something refused must survive the
refusal, so it is written outside `tenant_atomic()`.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson
from django.db import connections

from identity_platform.audit.origin import current_origin

_COLUMNS = "action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id, details"
_FOR_TENANT = f"INSERT INTO audit_tenantevent ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
_FOR_PLATFORM = (
    f"INSERT INTO audit_platformevent ({_COLUMNS}, tenant_id) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)


def _values(
    action: str, outcome: str, target: tuple[str, object] | None, details: Mapping[str, Any] | None
) -> list[Any]:
    origin = current_origin()
    kind, target_id = target or ("", "")
    return [
        action,
        outcome,
        origin.actor_kind,
        origin.actor_id,
        kind,
        str(target_id),
        origin.address,
        origin.request_id,
        orjson.dumps(details or {}, default=str).decode(),
    ]


def record_for_tenant(
    action: str,
    *,
    target: tuple[str, object] | None = None,
    outcome: str = "success",
    details: Mapping[str, Any] | None = None,
) -> None:
    """One row in the trail of the tenant that is entered.

    Takes the action (`noun.verb`), the target as (kind, id), the outcome and details that hold no personal data.
    """
    with connections["tenant"].cursor() as cursor:
        cursor.execute(_FOR_TENANT, _values(action, outcome, target, details))


def record_for_platform(
    action: str,
    *,
    tenant_id: UUID | None = None,
    target: tuple[str, object] | None = None,
    outcome: str = "success",
    details: Mapping[str, Any] | None = None,
) -> None:
    """One row in the platform's trail; `tenant_id` says which tenant it concerns, if one."""
    with connections["default"].cursor() as cursor:
        cursor.execute(_FOR_PLATFORM, [*_values(action, outcome, target, details), tenant_id])
