from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0008_checks_of_domain_claims")]

    operations = [
        migrations.AddField(
            model_name="databaseserver",
            name="region",
            # A default of the database: the release before this one inserts rows without it.
            field=models.CharField(blank=True, db_default="", default="", max_length=63),
        )
    ]
