import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0019_log_levels"),
    ]

    # Defaults of the database: the release before this one inserts rows without these columns.
    operations = [
        migrations.AddField(
            model_name="tenant",
            name="revision",
            field=models.PositiveBigIntegerField(db_default=1, default=1, editable=False),
        ),
        migrations.AddField(
            model_name="tenantdatabase",
            name="placement_revision",
            field=models.PositiveBigIntegerField(db_default=1, default=1, editable=False),
        ),
        migrations.AddField(
            model_name="tenantdatabase",
            name="copies_lag",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AddIndex(
            model_name="tenantdatabase",
            index=models.Index(condition=models.Q(("copies_lag", True)), fields=["tenant"], name="tenant_copies_lag"),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="applied_epoch",
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="applied_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="has_webhooks",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="name",
            field=models.CharField(db_default="", default="", max_length=255),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="placement_revision",
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="revision",
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="served_domains",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=253), db_default=[], default=list, size=None
            ),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="settings",
            field=models.JSONField(db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="sign_in_domain",
            field=models.CharField(max_length=253, null=True),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="slug",
            field=models.CharField(db_default="", default="", max_length=63),
        ),
        migrations.AddField(
            model_name="tenantrecord",
            name="status",
            field=models.CharField(db_default="", default="", max_length=16),
        ),
    ]
