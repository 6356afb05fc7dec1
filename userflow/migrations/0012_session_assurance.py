"""Sessions say how strongly they were proven and when they were last used."""

from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.utils.timezone import now

# Those that are there: two factors, or a passkey that has verified its user; last used at the last refresh, or opened.
_NOTE = """
UPDATE {table} SET acr = 'aal2' WHERE amr @> '["mfa"]'
  OR (amr @> '["pwd"]' AND (amr @> '["otp"]' OR amr @> '["sms"]' OR amr @> '["pop"]'));
UPDATE {table} SET last_used_at = created_at WHERE last_used_at IS NULL;
"""


def _session(model: str, *, tenant: bool) -> list[Operation]:
    return [
        migrations.AddField(model, "acr", models.CharField(default="aal1", max_length=8)),
        migrations.RenameField(model, "refreshed_at", "last_used_at"),
        migrations.RunSQL(_NOTE.format(table=f"userflow_{model}"), migrations.RunSQL.noop, hints={"tenant": tenant}),
        migrations.AlterField(model, "last_used_at", models.DateTimeField(default=now)),
    ]


class Migration(migrations.Migration):
    dependencies = [("userflow", "0011_one_open_invitation")]

    operations = [
        *_session("adminsession", tenant=False),
        *_session("endusersession", tenant=True),
        migrations.AddField("emailproof", "session_id", models.UUIDField(null=True)),
    ]
