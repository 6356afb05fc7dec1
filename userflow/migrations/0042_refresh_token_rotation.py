from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0041_signing_algorithms_of_clients"),
    ]

    operations = [
        migrations.AddField(
            model_name="client",
            name="refresh_token_rotation",
            field=models.BooleanField(blank=True, null=True),
        ),
    ]
