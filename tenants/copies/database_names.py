"""Names of tenants' databases."""

from django.conf import settings
from django.utils.crypto import get_random_string


def new_database_name() -> str:
    """Return a random database name, unrelated to the tenant."""
    return f"{settings.TENANT_DATABASE_PREFIX}{get_random_string(16, 'abcdefghijklmnopqrstuvwxyz0123456789')}"
