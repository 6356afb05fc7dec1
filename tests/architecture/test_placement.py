"""Every table exists exactly in the databases that it belongs to, read from the databases themselves."""

from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Model

from tenants.checks import no_relation_crosses, one_transaction_owner
from tenants.entering.context import in_tenant
from tenants.entering.router import lives_in_tenant
from tenants.entering.schema import migration_names
from tests.world import TestTenant

# The models of the task queue count as unmanaged, because its migrations create the tables in SQL.
MODELS = [
    model
    for model in apps.get_models(include_auto_created=True)
    if (model._meta.managed or model._meta.app_label == "procrastinate") and not model._meta.proxy
]
TABLES = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
FOREIGN_KEYS = (
    "SELECT c.conrelid::regclass::text, c.confrelid::regclass::text FROM pg_constraint c WHERE c.contype = 'f'"
)
# Django creates it wherever it migrates.
BOOKKEEPING = {"django_migrations"}


def rows(alias: str, statement: str) -> list[Any]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.fixture(scope="module")
def places(tenant: TestTenant, django_db_blocker: Any) -> dict[bool, set[str]]:
    """The tables of a tenant's database (True) and of the global one (False)."""
    with django_db_blocker.unblock(), in_tenant(tenant.id):
        return {
            True: {name for (name,) in rows("tenant", TABLES)},
            False: {name for (name,) in rows("default", TABLES)},
        }


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_table_exists_only_where_its_model_belongs(model: type[Model], places: dict[bool, set[str]]) -> None:
    table, in_a_tenant = model._meta.db_table, lives_in_tenant(model)
    assert table in places[in_a_tenant]
    assert table not in places[not in_a_tenant]


@pytest.mark.parametrize("in_a_tenant", [True, False])
def test_every_table_belongs_to_a_model(in_a_tenant: bool, places: dict[bool, set[str]]) -> None:
    known = {model._meta.db_table for model in MODELS if lives_in_tenant(model) == in_a_tenant}
    assert places[in_a_tenant] - known == BOOKKEEPING


def test_hidden_relation_tables_are_checked() -> None:
    hidden = [model._meta.db_table for model in MODELS if model._meta.auto_created]
    assert "userflow_group_roles" in hidden
    assert "userflow_adminuser_roles" in hidden


def test_end_users_are_in_tenants_and_admins_are_not() -> None:
    by_label = {model._meta.label: lives_in_tenant(model) for model in MODELS}
    assert by_label["userflow.EndUser"]
    assert by_label["userflow.EndUserSession"]
    assert not by_label["userflow.AdminUser"]
    assert not by_label["tenants.Tenant"]


def test_no_foreign_key_crosses(tenant: TestTenant) -> None:
    tenant_tables = {model._meta.db_table for model in MODELS if lives_in_tenant(model)}
    with in_tenant(tenant.id):
        assert {table for pair in rows("tenant", FOREIGN_KEYS) for table in pair} <= tenant_tables
    assert not {table for pair in rows("default", FOREIGN_KEYS) for table in pair} & tenant_tables
    assert no_relation_crosses() == []


def test_both_kinds_of_database_record_all_migrations(tenant: TestTenant) -> None:
    with in_tenant(tenant.id):
        assert migration_names() <= set(MigrationRecorder(connections["tenant"]).applied_migrations())
    assert migration_names() <= set(MigrationRecorder(connection).applied_migrations())


@pytest.mark.parametrize("alias", ["default", "tenant"])
def test_atomic_requests_is_a_check_error(alias: str, monkeypatch: Any) -> None:
    assert one_transaction_owner() == []
    monkeypatch.setitem(settings.DATABASES[alias], "ATOMIC_REQUESTS", True)
    assert [message.id for message in one_transaction_owner()] == ["tenants.E001"]
