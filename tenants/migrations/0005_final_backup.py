import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0004_server_capacity"),
    ]

    operations = [
        migrations.CreateModel(
            name="FinalBackup",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="final_backup",
                        serialize=False,
                        to="tenants.tenant",
                    ),
                ),
                ("file", models.CharField(max_length=1000)),
                ("delete_after", models.DateTimeField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
