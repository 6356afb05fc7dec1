import uuid
from typing import Any

from django.db import migrations, models

GRANTED = {
    "operator": ("domains:read", "domains:write"),
    "tenant-admin": ("domains:read", "domains:write"),
    "auditor": ("domains:read",),
}


def grant(apps: Any, schema_editor: Any) -> None:
    """Give the built-in roles the permissions on domains."""
    roles = apps.get_model("userflow", "AdminRole").objects.using(schema_editor.connection.alias)
    for role in roles.filter(name__in=GRANTED):
        if missing := [name for name in GRANTED[role.name] if name not in role.permissions]:
            role.permissions = [*role.permissions, *missing]
            role.save(update_fields=["permissions"])


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0020_default_client_is_first_party"),
    ]

    operations = [
        migrations.CreateModel(
            name="TenantDomain",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("domain", models.CharField(max_length=253, unique=True)),
                ("token", models.CharField(max_length=64)),
                ("checked_at", models.DateTimeField(null=True)),
                ("lost_since", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.RunPython(grant, migrations.RunPython.noop, hints={"tenant": False}),
    ]
