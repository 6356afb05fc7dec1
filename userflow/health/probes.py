"""What `/uflow/ready` looks at: the global database and the cache. A tenant's database is that tenant's matter."""

from django.conf import settings
from django.db import DatabaseError, connection
from psycopg import OperationalError

from identity_platform.api import valkey
from identity_platform.postgresql.base import answers


def database_answers() -> bool:
    """Whether the global database answers a statement in time; a server that hangs holds the probe no longer."""
    try:
        connection.close_if_health_check_failed()
        connection.ensure_connection()
        if answers(connection.connection, within=settings.READY_DATABASE_SECONDS):
            return True
    except (DatabaseError, OperationalError):
        pass
    connection.close()
    return False


def cache_answers() -> bool:
    """Whether Valkey answers a ping."""
    return valkey.is_connected(timeout=1.0)
