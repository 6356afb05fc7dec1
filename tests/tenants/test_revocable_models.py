"""Every model of tenants' databases says what a restore does with its rows."""

import pytest
from django.apps import apps
from django.db.models import Model

from identity_platform.restoring import Closed, Journaled, NoAuthority, Revocation
from tenants.entering.router import lives_in_tenant
from tenants.journals import revocations
from tests.tenants.conftest import connect_to
from tests.world import TestTenant

MODELS = [model for model in apps.get_models() if lives_in_tenant(model)]
_TRIGGERS = (
    "SELECT c.relname, string_to_array(encode(t.tgargs, 'escape'), '\\000') FROM pg_trigger t"
    " JOIN pg_class c ON c.oid = t.tgrelid WHERE t.tgname LIKE 'journal_of_%%' AND t.tgenabled = 'O'"
)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_model_declares_what_a_restore_does(model: type[Model]) -> None:
    rule = getattr(model, "after_restore", None)
    assert isinstance(rule, Journaled | Closed | NoAuthority), f"{model._meta.label} does not declare `after_restore`."
    if isinstance(rule, NoAuthority):
        assert rule.reason.endswith(".")
    if isinstance(rule, Closed):
        assert callable(getattr(model, "close_all", None))


def test_many_to_many_tables_are_journaled() -> None:
    tables = {table._meta.db_table for table in apps.get_models(include_auto_created=True) if table._meta.auto_created}
    own = {table for table in tables if table in {t._meta.db_table for t in _of_tenants()}}
    assert own == {revocation.source for _, revocation in revocations.declared() if revocation.source in own}


def _of_tenants() -> list[type[Model]]:
    return [table for table in apps.get_models(include_auto_created=True) if lives_in_tenant(table)]


def _table(model: type[Model], revocation: Revocation) -> str:
    return (revocation.source or model._meta.db_table).partition(",")[0]


def test_each_declared_revocation_has_its_trigger(tenant: TestTenant) -> None:
    declared = {(_table(model, one), one.kind, one.columns) for model, one in revocations.declared()}
    with connect_to(tenant.row) as raw:
        triggers = {(table, arguments[0], arguments[1]) for table, arguments in raw.execute(_TRIGGERS).fetchall()}
    assert triggers == declared


def test_kinds_are_unique() -> None:
    kinds = [revocation.kind for _, revocation in revocations.declared()]
    assert len(kinds) == len(set(kinds))
