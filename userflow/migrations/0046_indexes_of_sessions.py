"""No index on a column that each use, refresh or attempt writes, and none of a foreign key that another one begins with.

The foreign keys stay as they are: Django would drop and check them again, with both tables locked.
"""

import django.db.models.deletion
from django.db import migrations, models

# The names that Django has given.
_ADMIN_SESSION_USER = "userflow_adminsession_user_id_8db13cef"
_END_USER_SESSION_USER = "userflow_endusersession_user_id_fbd35900"
_END_USER_SESSION_PARENT = "userflow_endusersession_parent_id_aa4e2acc"


def _without_index(table: str, column: str, index: str, *, in_tenant: bool) -> migrations.RunSQL:
    back = f"CREATE INDEX IF NOT EXISTS {index} ON {table} ({column})"
    return migrations.RunSQL(f"DROP INDEX IF EXISTS {index}", back, hints={"tenant": in_tenant})


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0045_require_nonce"),
    ]

    operations = [
        # Before the drop: the release before lists sessions too.
        migrations.AddIndex(
            model_name="endusersession",
            index=models.Index(fields=["-created_at"], name="end_user_session_newest_first"),
        ),
        migrations.AddIndex(
            model_name="endusersession",
            index=models.Index(
                condition=models.Q(("parent__isnull", False)), fields=["parent"], name="end_user_session_parent"
            ),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                _without_index("userflow_adminsession", "user_id", _ADMIN_SESSION_USER, in_tenant=False),
                _without_index("userflow_endusersession", "user_id", _END_USER_SESSION_USER, in_tenant=True),
                _without_index("userflow_endusersession", "parent_id", _END_USER_SESSION_PARENT, in_tenant=True),
            ],
            state_operations=[
                migrations.AlterField(
                    model_name="adminsession",
                    name="user",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sessions",
                        to="userflow.adminuser",
                    ),
                ),
                migrations.AlterField(
                    model_name="endusersession",
                    name="user",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sessions",
                        to="userflow.enduser",
                    ),
                ),
                migrations.AlterField(
                    model_name="endusersession",
                    name="parent",
                    field=models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="children",
                        to="userflow.endusersession",
                    ),
                ),
            ],
        ),
        migrations.RemoveIndex(model_name="adminsession", name="admin_session_expiry"),
        migrations.RemoveIndex(model_name="endusersession", name="end_user_session_expiry"),
        migrations.RemoveIndex(model_name="adminattempts", name="admin_attempts_age"),
        migrations.RemoveIndex(model_name="enduserattempts", name="end_user_attempts_age"),
    ]
