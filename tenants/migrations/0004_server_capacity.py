from django.db import migrations, models

OLD_DEFAULT, DEFAULT = 10_000, 1_000


def lower_unchanged_capacities(apps, schema_editor):
    """Give servers that still have the old default the new one, unless they hold more tenants than that already."""
    servers = apps.get_model("tenants", "DatabaseServer").objects.using(schema_editor.connection.alias)
    held = models.Count("databases", filter=~models.Q(databases__status="deleted"))
    for server in servers.filter(capacity=OLD_DEFAULT).annotate(held=held).filter(held__lt=DEFAULT):
        servers.filter(pk=server.pk).update(capacity=DEFAULT)


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0003_webauthn_claims"),
    ]

    operations = [
        migrations.AlterField(
            model_name="databaseserver",
            name="capacity",
            field=models.PositiveIntegerField(default=1000, help_text="How many tenants it takes at most."),
        ),
        migrations.RunPython(lower_unchanged_capacities, migrations.RunPython.noop, hints={"tenant": False}),
    ]
