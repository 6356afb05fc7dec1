"""What `/uflow/ready` looks at: the global database and the cache. A tenant's database is that tenant's matter."""

from django.db import Error, connection

from identity_platform.api import valkey


def database_answers() -> bool:
    """Whether the global database answers a statement, within what a request waits for one (`postgresql.patience`)."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except Error:
        # The next probe begins anew, whatever was wrong with this connection.
        connection.close()
        return False
    return True


def cache_answers() -> bool:
    """Whether Valkey answers a ping."""
    return valkey.is_connected(timeout=1.0)
