"""Sends end-user models to tenant databases and everything else to the global one."""

from typing import Any

from django.apps import apps
from django.db.models import Model

from tenants.target import TENANT_ALIAS, entered_target

GLOBAL_ALIAS = "default"


def lives_in_tenant(model: type[Model]) -> bool:
    """Whether the model's table belongs into tenant databases; a relation's hidden table goes with its owner."""
    owner = model._meta.auto_created or model
    return bool(getattr(owner, "lives_in_tenant", False))


class TenantRouter:
    """Django's database router (topics/db/multi-db)."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        return TENANT_ALIAS if lives_in_tenant(model) else GLOBAL_ALIAS

    db_for_write = db_for_read

    def allow_relation(self, one: Model, other: Model, **hints: Any) -> bool:
        """No relation crosses databases."""
        return lives_in_tenant(type(one)) == lives_in_tenant(type(other))

    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **hints: Any) -> bool:
        """A table is made exactly where it belongs. Data migrations say so with `hints={"tenant": True}`.

        Without a tenant entered there is no tenant database to migrate: `makemigrations` and a bare `migrate` ask for
        every alias.
        """
        if db == TENANT_ALIAS and entered_target() is None:
            return False
        if model_name is None:
            return bool(hints.get("tenant", False)) == (db == TENANT_ALIAS)
        # By name: the historical models of migrations do not carry the mark.
        model = apps.get_app_config(app_label).get_model(model_name)
        return lives_in_tenant(model) == (db == TENANT_ALIAS)
