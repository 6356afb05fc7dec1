"""Statements about the chosen tenant's database that the ORM cannot express."""

from typing import cast

from django.db import connections

from tenants.target import TENANT_ALIAS


def end_users_table_bytes() -> int:
    """Return the size of the table of end users in bytes."""
    with connections[TENANT_ALIAS].cursor() as cursor:
        cursor.execute("SELECT pg_relation_size('userflow_enduser')")
        (size,) = cast(tuple[int], cursor.fetchone())
    return size
