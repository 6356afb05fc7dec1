"""End users say whether they registered themselves. Existing users count as registered by others: they do not yield."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("userflow", "0013_ticket_bindings")]

    operations = [
        migrations.AddField("enduser", "self_registered", models.BooleanField(db_default=False, default=False)),
    ]
