"""Give admin roles that may change end users the permission to reset their factors, which used to be part of that."""

from typing import Any

from django.db import migrations

PERMISSION = "endusers:factors"


def grant(apps: Any, schema_editor: Any) -> None:
    roles = apps.get_model("userflow", "AdminRole").objects.using(schema_editor.connection.alias)
    for role in roles.filter(permissions__contains=["endusers:write"]):
        if PERMISSION not in role.permissions:
            role.permissions = [*role.permissions, PERMISSION]
            role.save(update_fields=["permissions"])


class Migration(migrations.Migration):
    dependencies = [("userflow", "0016_admin_addresses_and_undo")]

    operations = [migrations.RunPython(grant, migrations.RunPython.noop, hints={"tenant": False})]
