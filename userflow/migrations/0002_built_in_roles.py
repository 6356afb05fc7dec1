"""The built-in roles: of admin users in the global database, the default role of end users in each tenant's."""

from typing import Any

from django.db import migrations

from userflow.accounts.permissions_catalogue import BUILT_IN_ROLES


def make_admin_roles(apps: Any, schema_editor: Any) -> None:
    role = apps.get_model("userflow", "AdminRole")
    for name, permissions in BUILT_IN_ROLES.items():
        role.objects.using(schema_editor.connection.alias).update_or_create(
            name=name, defaults={"permissions": list(permissions)}
        )


def make_default_role(apps: Any, schema_editor: Any) -> None:
    apps.get_model("userflow", "Role").objects.using(schema_editor.connection.alias).get_or_create(
        name="user",
        defaults={
            "built_in": True,
            "description": "Every registered end user has it.",
            "permissions": ["profile:read", "profile:write"],
        },
    )


class Migration(migrations.Migration):
    dependencies = [("userflow", "0001_initial")]
    operations = [
        migrations.RunPython(make_admin_roles, migrations.RunPython.noop, hints={"tenant": False}),
        migrations.RunPython(make_default_role, migrations.RunPython.noop, hints={"tenant": True}),
    ]
