"""Remember which caller asked for a code, so that another one does not void it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("mfa", "0003_passkey_names")]

    operations = [
        migrations.AddField(
            model_name="smscode",
            name="asked_from",
            field=models.CharField(default="", max_length=43),
        ),
    ]
