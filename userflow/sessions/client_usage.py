"""When a client was last used: kept to the minute, so that it costs no write per request."""

from typing import Final
from uuid import UUID

from django.db import connection

# For a SELECT that reads the client anyway.
STALE_USE: Final = (
    "({client}.id IS NOT NULL AND ({client}.last_used_at IS NULL"
    " OR {client}.last_used_at < now() - interval '1 minute'))"
)
_NOTE = (
    "UPDATE userflow_client SET last_used_at = now() WHERE id = %s"
    " AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')"
)


def note_use(client_id: UUID) -> None:
    """The client is in use now; call it when STALE_USE was true. Of many at once one writes."""
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, [client_id])
