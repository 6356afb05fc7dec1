"""Store when a client was last used, to the minute: a write for every request would cost too much."""

from uuid import UUID

from django.db import connection

_NOTE = (
    "UPDATE userflow_client SET last_used_at = now() WHERE id = %s"
    " AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')"
)


def note_use(client_id: UUID) -> None:
    """Store that the client is in use now, after its stored time was found stale. Of many callers at once one writes."""
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, [client_id])
