"""Locks of PostgreSQL that no model covers: who is writing to the outbox, and who may create an endpoint."""

from uuid import UUID

from django.db import connections

from tenants.target import TENANT_ALIAS

ENDPOINTS_LOCK = 7_215_020
_HIGHEST_ID_AND_WRITERS = """
SELECT coalesce(max(id), 0), ARRAY(
    SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
        AND relation = 'userflow_webhookmessage'::regclass AND pid IS DISTINCT FROM pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
FROM userflow_webhookmessage WHERE endpoint_id = %s AND status = 'pending'
"""
_STILL_WRITING = """
SELECT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
        AND relation = 'userflow_webhookmessage'::regclass AND pid IS DISTINCT FROM pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND virtualtransaction = ANY(%s)
)
"""


def lock_endpoints() -> None:
    """Let one transaction at a time create an endpoint of the tenant."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [ENDPOINTS_LOCK])


def highest_id_and_writers(endpoint_id: UUID) -> tuple[int, list[str]]:
    """Return the highest pending id that is visible now, and the transactions that may still add a lower one."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        # The snapshot is taken before the locks are read, so a writer that ends in between is seen by the next statement.
        cursor.execute(_HIGHEST_ID_AND_WRITERS, [endpoint_id])
        highest, writers = cursor.fetchone()
    return highest, list(writers)


def any_still_writing(writers: list[str]) -> bool:
    """Return whether one of these transactions is still open."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute(_STILL_WRITING, [writers])
        return bool(cursor.fetchone()[0])
