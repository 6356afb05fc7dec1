import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0015_revocation_journal"),
    ]

    operations = [
        migrations.AddField(
            model_name="databaseserver",
            name="detached",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AddField(
            model_name="databaseserver",
            name="fence_beats",
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddField(
            model_name="databaseserver",
            name="fence_revision",
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.CreateModel(
            name="FormerSlug",
            fields=[
                ("slug", models.CharField(max_length=63, primary_key=True, serialize=False)),
                ("ended_at", models.DateTimeField(auto_now_add=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="former_slugs", to="tenants.tenant"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Installation",
            fields=[
                ("one", models.BooleanField(default=True, editable=False, unique=True)),
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("epoch", models.PositiveBigIntegerField(default=1)),
                ("home", models.CharField(max_length=100)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("one", True)), name="one_installation")],
            },
        ),
        migrations.CreateModel(
            name="TenantRecord",
            fields=[
                ("one", models.BooleanField(default=True, editable=False, primary_key=True, serialize=False)),
                ("installation", models.UUIDField()),
                ("epoch", models.PositiveBigIntegerField()),
                ("tenant_id", models.UUIDField(null=True)),
                ("template_rows", models.JSONField(db_default={}, default=dict)),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("one", True)), name="one_tenant_record")],
            },
        ),
    ]
