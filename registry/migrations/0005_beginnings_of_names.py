from django.db import migrations, models
from django.db.models.functions import Collate, Lower


class Migration(migrations.Migration):
    dependencies = [("registry", "0004_look_ups")]

    operations = [
        migrations.AddIndex(
            model_name="service",
            index=models.Index(Collate(Lower("name"), "C"), name="service_name_begins"),
        ),
    ]
