"""Passkeys enrolled without a proof of the user's own sign in alone only after a sign-in with password and passkey."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("mfa", "0004_sms_code_asked_from")]

    operations = [
        migrations.AddField(model, "second_step_only", models.BooleanField(db_default=False, default=False))
        for model in ("adminpasskey", "enduserpasskey")
    ]
