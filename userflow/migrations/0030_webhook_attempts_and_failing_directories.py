from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("userflow", "0029_index_of_end_users")]

    operations = [
        migrations.AddField(
            model_name="webhookmessage",
            name="attempt_log",
            # A default of the database: a constant rewrites no row, and the release before this one inserts without it.
            field=models.JSONField(db_default=[], default=list),
        ),
        migrations.AddField(
            model_name="directoryconfig",
            name="failing_since",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name="directoryconfig",
            index=models.Index(
                condition=models.Q(("failing_since__isnull", False)), fields=["tenant"], name="directory_config_failing"
            ),
        ),
    ]
