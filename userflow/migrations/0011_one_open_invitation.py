"""One open invitation per address and kind. Of several that are open, the one sent last stays open."""

from django.db import migrations, models

_KEEP_NEWEST = """
UPDATE {table} SET cancelled_at = now() WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY {same} ORDER BY expires_at DESC, created_at DESC, id) AS place
        FROM {table} WHERE accepted_at IS NULL AND cancelled_at IS NULL
    ) AS still_open WHERE place > 1
)
"""
_OPEN = models.Q(accepted_at=None, cancelled_at=None)


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0010_invitations_by_user"),
    ]

    operations = [
        migrations.RunSQL(
            _KEEP_NEWEST.format(table="userflow_admininvitation", same="email_key, tenant_id"),
            migrations.RunSQL.noop,
            hints={"tenant": False},
        ),
        migrations.RunSQL(
            _KEEP_NEWEST.format(table="userflow_enduserinvitation", same="email_key"),
            migrations.RunSQL.noop,
            hints={"tenant": True},
        ),
        migrations.AddConstraint(
            model_name="admininvitation",
            constraint=models.UniqueConstraint(
                condition=_OPEN,
                fields=("email_key", "tenant"),
                name="admin_invitation_open_unique",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="enduserinvitation",
            constraint=models.UniqueConstraint(
                condition=_OPEN,
                fields=("email_key",),
                name="end_user_invitation_open_unique",
            ),
        ),
    ]
