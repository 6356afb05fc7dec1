from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0013_beginnings_of_names")]

    operations = [
        migrations.AddField(
            model_name="serverhealth",
            name="tenants",
            field=models.PositiveIntegerField(
                help_text="On the server, so that a page need not count them.", null=True
            ),
        ),
        migrations.AddIndex(
            model_name="domainclaim",
            index=models.Index(
                condition=models.Q(("lost_since__isnull", False)), fields=["tenant"], name="domain_claim_lost"
            ),
        ),
    ]
