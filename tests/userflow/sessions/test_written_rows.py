"""Rows that sign-ins and refreshes write again and again: PostgreSQL changes no index for them (heap-only tuples)."""

import re

import pytest
from django.db import connections
from django.db.models import Model

from tenants.entering.context import in_tenant
from tests.world import TestTenant
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.session_models import AdminAttempts, AdminSession, EndUserAttempts, EndUserSession

OF_USERS = ("last_login",)
OF_SESSIONS = ("last_used_at", "expires_at")
OF_ATTEMPTS = ("failures", "updated_at", "locked_until")


def indexed(model: type[Model], columns: tuple[str, ...], alias: str) -> list[str]:
    """Return the definitions of the table's indexes that have one of the columns, also in a condition."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = %s::regclass",
            [model._meta.db_table],
        )
        definitions = [definition for (definition,) in cursor.fetchall()]
    assert definitions
    return [each for each in definitions if re.search(rf"\b({'|'.join(columns)})\b", each)]


@pytest.mark.parametrize(
    ("model", "columns"), [(EndUser, OF_USERS), (EndUserSession, OF_SESSIONS), (EndUserAttempts, OF_ATTEMPTS)]
)
def test_no_index_has_what_end_users_write(tenant: TestTenant, model: type[Model], columns: tuple[str, ...]) -> None:
    with in_tenant(tenant.id):
        assert indexed(model, columns, "tenant") == []


@pytest.mark.parametrize(
    ("model", "columns"), [(AdminUser, OF_USERS), (AdminSession, OF_SESSIONS), (AdminAttempts, OF_ATTEMPTS)]
)
def test_no_index_has_what_admin_users_write(model: type[Model], columns: tuple[str, ...]) -> None:
    assert indexed(model, columns, "default") == []


def test_no_index_of_sessions_begins_as_another_one(tenant: TestTenant) -> None:
    with in_tenant(tenant.id), connections["tenant"].cursor() as cursor:
        cursor.execute(
            "SELECT a.indexrelid::regclass::text FROM pg_index a JOIN pg_index b ON b.indrelid = a.indrelid"
            " AND b.indexrelid <> a.indexrelid AND a.indpred IS NULL AND b.indpred IS NULL"
            " AND left(b.indkey::text || ' ', length(a.indkey::text) + 1) = a.indkey::text || ' '"
            " WHERE a.indrelid = 'userflow_endusersession'::regclass"
        )
        assert cursor.fetchall() == []
