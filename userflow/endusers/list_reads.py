"""Audit of lists of end users that are read over the API: `end_user.listed`, as in the console.

One event per caller, filter and hour. Valkey stores what has been recorded, and each process caches what it has asked
Valkey, so that a repeated read costs neither a statement nor a round trip.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import orjson
import structlog
from django.db import DatabaseError

from identity_platform.api import ratelimit
from identity_platform.audit.origin import current_origin
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import keyed_digest
from tenants import keys
from tenants.entering.context import current_tenant
from tenants.states import Purpose

log = structlog.get_logger("identity.audit")

SECONDS: Final = 3600
_MOST_KEPT: Final = 10_000
_recorded: OrderedDict[bytes, int] = OrderedDict()
_lock = threading.Lock()


def record_list_read(filters: Mapping[str, object]) -> None:
    """Record that the caller reads the list of the entered tenant, unless this hour's event exists.

    The event contains the names of the filters, never their values, which may be personal data. If the database is
    read-only while the tenant is moved or migrated, the read succeeds without an event.
    """
    tenant, origin = current_tenant(), current_origin()
    list_key = orjson.dumps([tenant.tenant_id, origin.actor_kind, origin.actor_id, sorted(filters.items())])
    if _recorded.get(list_key, 0) > time.time() or not tenant.allows(Purpose.EDIT_USERS):
        return
    key = keyed_digest(list_key.decode(), key=keys.platform_key(), purpose="list read").hex()
    used = ratelimit.count(group="list_read", key=key, limit=1, period=SECONDS)
    with _lock:
        _recorded[list_key] = used.reset_at
        if len(_recorded) > _MOST_KEPT:
            _recorded.popitem(last=False)
    if used.limited:
        return
    try:
        record_for_tenant("end_user.listed", details={"filters": sorted(filters)})
    except DatabaseError as problem:
        log.warning("list_read_not_audited", kind=type(problem).__qualname__)


def forget() -> None:
    """Forget what this process has asked Valkey."""
    with _lock:
        _recorded.clear()
