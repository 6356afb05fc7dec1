from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0011_connection_leases")]

    operations = [
        migrations.AddField(
            model_name="databaseserver",
            name="labels",
            # A default of the database: the release before this one inserts rows without it.
            field=ArrayField(base_field=models.CharField(max_length=63), blank=True, db_default=[], default=list),
        )
    ]
