"""Route tenant models to tenant databases and all others to the global database."""

from django.apps import apps
from django.db.models import Model

from tenants.entering.target import TENANT_ALIAS, entered_target

GLOBAL_ALIAS = "default"


def lives_in_tenant(model: type[Model]) -> bool:
    """Return whether the model's table is in tenant databases. A many-to-many table follows its owner."""
    owner = model._meta.auto_created or model
    return bool(getattr(owner, "lives_in_tenant", False))


class TenantRouter:
    """Django's database router (topics/db/multi-db)."""

    def db_for_read(self, model: type[Model], **hints: object) -> str:
        return TENANT_ALIAS if lives_in_tenant(model) else GLOBAL_ALIAS

    db_for_write = db_for_read

    def allow_relation(self, instance: Model, other: Model, **hints: object) -> bool:
        """Reject relations across databases."""
        return lives_in_tenant(type(instance)) == lives_in_tenant(type(other))

    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **hints: object) -> bool:
        """Create each table in one kind of database. Data migrations declare theirs with `hints={"tenant": True}`.

        False for the tenant alias outside a tenant: `makemigrations` and a bare `migrate` ask for every alias.
        """
        if db == TENANT_ALIAS and entered_target() is None:
            return False
        if model_name is None:
            return bool(hints.get("tenant", False)) == (db == TENANT_ALIAS)
        # By name: historical models of migrations lack the attribute.
        model = apps.get_app_config(app_label).get_model(model_name)
        return lives_in_tenant(model) == (db == TENANT_ALIAS)
