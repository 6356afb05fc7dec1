from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0018_operating_modes"),
    ]

    operations = [
        migrations.CreateModel(
            name="LogLevel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("area", models.CharField(blank=True, max_length=50, unique=True)),
                (
                    "level",
                    models.CharField(
                        choices=[("debug", "debug"), ("info", "info"), ("warning", "warning"), ("error", "error")],
                        max_length=10,
                    ),
                ),
                ("until", models.DateTimeField()),
                ("set_at", models.DateTimeField(auto_now=True)),
            ],
        ),
    ]
