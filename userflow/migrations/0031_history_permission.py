"""Let the built-in roles of operators and admins grant the permission to see the events of one user."""

from typing import Any

from django.db import migrations

PERMISSION = "endusers:history"


def grant(apps: Any, schema_editor: Any) -> None:
    roles = apps.get_model("userflow", "AdminRole").objects.using(schema_editor.connection.alias)
    for role in roles.filter(name__in=["operator", "tenant-admin"]):
        if PERMISSION not in role.permissions:
            role.permissions = [*role.permissions, PERMISSION]
            role.save(update_fields=["permissions"])


class Migration(migrations.Migration):
    dependencies = [("userflow", "0030_webhook_attempts_and_failing_directories")]

    operations = [migrations.RunPython(grant, migrations.RunPython.noop, hints={"tenant": False})]
