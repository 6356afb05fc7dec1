"""Audit rejected requests: `access.rejected`, at most one event per principal, operation and minute.

A rejection of a known principal is recorded after its request, outside every transaction. The first one in a minute writes an
event; the others only increment a count in Valkey, so rejected requests cannot fill a trail. An event's `count` is the number
of rejections since the principal's previous event for the operation. `record_leftovers` writes the remaining counts, once a
minute. While Valkey is unavailable each process writes its own first event of a minute, and the others are not counted.
"""

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

import orjson
import redis
import structlog
from django.core.cache import caches
from django.http import HttpRequest, HttpResponse

from identity_platform.api import metrics, ratelimit, valkey
from identity_platform.api.cache import degraded
from identity_platform.api.errors import ApiError, InsufficientScope
from identity_platform.audit.origin import Origin, current_origin, set_origin
from identity_platform.audit.writer import record_for_platform, record_for_tenant
from tenants.entering.context import in_tenant
from tenants.errors import TenantMismatch, UnknownTenant

log = structlog.get_logger("identity.audit")

ACTION: Final = "access.rejected"
OPERATOR: Final = "operator"
# Counts are dropped after this time if neither `tenant_worker` nor `seal_audit` runs.
_KEPT_SECONDS: Final = 86_400


class RejectedCalls:
    """Middleware that audits every rejected request of a known principal, for endpoints and pages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        problem: ApiError | None = getattr(request, "rejection", None)
        if response.status_code == 403 or (problem is not None and problem.audited):
            _record(request, problem)
        return response


def _record(request: HttpRequest, problem: ApiError | None) -> None:
    origin = current_origin()
    if origin.actor_tenant_id is None and origin.actor_kind != OPERATOR:
        return
    match = request.resolver_match
    field = _field(origin, metrics.method_of(request), match.route if match else "")
    # The response stays the same if its audit event cannot be written.
    try:
        if ratelimit.count(group="rejected", key=field, limit=1, period=60).limited:
            _add(field, 1)
        else:
            _write(field, 1 + _take(field), _facts(problem, origin))
    except Exception as failure:
        log.warning("rejection_not_audited", kind=type(failure).__qualname__)


def _facts(problem: ApiError | None, origin: Origin) -> dict[str, str]:
    facts: dict[str, str] = {"reason": type(problem).__name__ if problem else "PermissionDenied"}
    if isinstance(problem, InsufficientScope) and problem.scope:
        facts["permission"] = problem.scope
    if isinstance(problem, TenantMismatch) and problem.tenant_id not in (None, origin.actor_tenant_id):
        facts["tenant_id"] = str(problem.tenant_id)
    return facts


def _field(origin: Origin, method: str, route: str) -> str:
    """Return the key of the count: principal and operation, as a later event needs them."""
    tenant_id = str(origin.actor_tenant_id) if origin.actor_tenant_id else None
    return orjson.dumps([tenant_id, origin.actor_kind, origin.actor_id, method, route]).decode()


def _write(field: str, count: int, facts: Mapping[str, str]) -> None:
    """Write the event to the trail of the principal's tenant; for operators, to the platform's."""
    tenant_id, _, _, method, route = orjson.loads(field)
    details = {"method": method, "route": route, **facts, "count": count}
    try:
        if tenant_id is None:
            record_for_platform(ACTION, outcome="refused", details=details)
        else:
            with in_tenant(UUID(tenant_id)):
                record_for_tenant(ACTION, outcome="refused", details=details)
    except UnknownTenant:
        return  # the tenant was deleted, with its trail
    except Exception:
        _add(field, count)
        raise


def record_leftovers() -> int:
    """Write an event for each count whose minute is over; return how many. Safe to run on several machines at once."""
    written = 0
    before = current_origin()
    try:
        for name, _ in list(valkey.client().hscan_iter(_hash())):
            field = name.decode()
            if ratelimit.peek(group="rejected", key=field, limit=1, period=60).count or degraded():
                continue
            if count := _take(field):
                _, kind, actor_id, *_ = orjson.loads(field)
                set_origin(Origin(kind, actor_id))
                try:
                    _write(field, count, {})
                    written += 1
                except Exception as failure:
                    log.warning("rejection_not_audited", kind=type(failure).__qualname__)
    except (redis.RedisError, OSError):
        return written
    finally:
        set_origin(before)
    return written


def _hash() -> str:
    return f"{caches['default'].key_prefix}:rejected"


def _add(field: str, count: int) -> None:
    if degraded():
        return
    try:
        with valkey.client().pipeline() as pipe:
            pipe.hincrby(_hash(), field, count)
            pipe.expire(_hash(), _KEPT_SECONDS)
            pipe.execute()
    except (redis.RedisError, OSError):
        return


def _take(field: str) -> int:
    """Remove and return the count that no event has reported yet."""
    if degraded():
        return 0
    try:
        with valkey.client().pipeline() as pipe:
            pipe.hget(_hash(), field)
            pipe.hdel(_hash(), field)
            count, _ = pipe.execute()
    except (redis.RedisError, OSError):
        return 0
    return int(count or 0)
