from django.db import migrations, models
from django.db.models.functions import Collate, Lower


class Migration(migrations.Migration):
    dependencies = [("userflow", "0028_kept_responses_of_refresh_tokens")]

    operations = [
        migrations.CreateModel(
            name="IndexedEndUser",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id", "user_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("user_id", models.UUIDField()),
                (
                    "digest",
                    models.BinaryField(help_text="Of the address (`user_index.entries.digest_of`).", max_length=16),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["digest", "tenant_id"], name="indexed_end_user_address"),
                    models.Index(fields=["user_id", "tenant_id"], name="indexed_end_user_id"),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="client",
            index=models.Index(Collate(Lower("name"), "C"), name="client_name_begins"),
        ),
        migrations.AddIndex(
            model_name="adminuser",
            index=models.Index(Collate(Lower("username"), "C"), name="admin_username_begins"),
        ),
        migrations.AddIndex(
            model_name="adminuser",
            index=models.Index(Collate(Lower("email_key"), "C"), name="admin_email_begins"),
        ),
    ]
