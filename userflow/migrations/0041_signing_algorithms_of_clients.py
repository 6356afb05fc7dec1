"""New clients get ID tokens by RS256. Existing rows state their algorithm and keep it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0040_pkce_and_refreshed_claims"),
    ]

    operations = [
        migrations.AlterField(
            model_name="client",
            name="id_token_signed_response_alg",
            field=models.CharField(db_default="RS256", default="RS256", max_length=8),
        ),
        migrations.AddField(
            model_name="client",
            name="access_token_signed_response_alg",
            field=models.CharField(db_default="ES256", default="ES256", max_length=8),
        ),
    ]
