"""What `/uflow/ready` looks at: the global database and the cache. A tenant's database is that tenant's matter."""

from django.db import DatabaseError, connection

from identity_platform.api import valkey


def database_answers() -> bool:
    """Whether the global database answers a statement within its connect timeout."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError:
        return False
    return True


def cache_answers() -> bool:
    """Whether Valkey answers a ping."""
    return valkey.is_connected(timeout=1.0)
