"""Tickets can be bound to a session (proof tokens) and to the login that they were issued with."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("userflow", "0012_session_assurance")]

    operations = [
        migrations.AddField(model, name, column(null=True))
        for model in ("adminticket", "enduserticket")
        for name, column in (("session_id", models.UUIDField), ("login_digest", models.BinaryField))
    ]
