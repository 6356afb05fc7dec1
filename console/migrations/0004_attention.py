from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("console", "0003_backlogs")]

    operations = [
        migrations.AddField(
            model_name="tenantfigures",
            name="failing_endpoints",
            field=models.BigIntegerField(
                db_default=0,
                default=0,
                help_text="Webhook endpoints that fail, or were disabled because they failed.",
            ),
        ),
        migrations.AddField(
            model_name="tenantfigures",
            name="rejected_sign_ins",
            field=models.BigIntegerField(
                db_default=0,
                default=0,
                help_text="On the worse of the last two days, if there were unusually many; else 0.",
            ),
        ),
        migrations.AddField(
            model_name="tenantfigures",
            name="needs_attention",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddIndex(
            model_name="tenantfigures",
            index=models.Index(
                condition=models.Q(("needs_attention", True)), fields=["tenant"], name="console_attention"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(fields=["state", "ended_at"], name="console_job_state"),
        ),
    ]
