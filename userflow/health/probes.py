"""Checks of `/uflow/ready`: the global database and the cache. Tenant databases are not part of it."""

from django.db import Error, connection

from identity_platform.api import valkey


def database_answers() -> bool:
    """Return whether the global database executes a statement within the statement timeout of requests."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except Error:
        # The next probe opens a new connection.
        connection.close()
        return False
    return True


def cache_answers() -> bool:
    """Return whether Valkey replies to a ping."""
    return valkey.is_connected(timeout=1.0)
