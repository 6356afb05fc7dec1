from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0044_mutual_tls"),
    ]

    operations = [
        migrations.AddField(
            model_name="client",
            name="require_nonce",
            field=models.BooleanField(db_default=True, default=True),
        ),
    ]
