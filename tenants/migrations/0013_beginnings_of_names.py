from django.db import migrations, models
from django.db.models.functions import Collate, Lower


class Migration(migrations.Migration):
    dependencies = [("tenants", "0012_server_labels")]

    operations = [
        migrations.AddIndex(
            model_name="tenant",
            index=models.Index(Collate(Lower("slug"), "C"), name="tenant_slug_begins"),
        ),
        migrations.AddIndex(
            model_name="tenant",
            index=models.Index(Collate(Lower("name"), "C"), name="tenant_name_begins"),
        ),
    ]
