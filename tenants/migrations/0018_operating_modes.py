import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0017_which_final_backup")]

    operations = [
        migrations.CreateModel(
            name="OperatingMode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "mode",
                    models.CharField(
                        choices=[("read_only", "read_only"), ("maintenance", "maintenance")], max_length=20
                    ),
                ),
                ("until", models.DateTimeField(null=True)),
                ("reason", models.CharField(blank=True, default="", max_length=200)),
                ("started_at", models.DateTimeField(auto_now_add=True)),
                (
                    "server",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="operating_mode",
                        to="tenants.databaseserver",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.Value(1), condition=models.Q(server=None), name="one_operating_mode_of_the_platform"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(mode__in=["read_only", "maintenance"]), name="known_operating_mode"
                    ),
                ]
            },
        )
    ]
