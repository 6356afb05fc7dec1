"""Triggers that note in a tenant's database whose entry in the index of end users differs, until it is delivered."""

from django.db import migrations, models
from django.db.models.functions import Now

_NOTE = """
-- Of single rows only a changed address starts it: the last sign-in, written by every login, must not.
CREATE FUNCTION userflow_note_for_index() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE noted bigint := 1;
BEGIN
    IF TG_LEVEL = 'ROW' THEN
        INSERT INTO userflow_unindexedenduser (user_id) VALUES (NEW.id);
    ELSE
        INSERT INTO userflow_unindexedenduser (user_id) SELECT id FROM affected;
        GET DIAGNOSTICS noted = ROW_COUNT;
    END IF;
    IF noted > 0 THEN
        PERFORM tenants_tell_revocation();
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER index_of_added_end_users AFTER INSERT ON userflow_enduser
    REFERENCING NEW TABLE AS affected FOR EACH STATEMENT EXECUTE FUNCTION userflow_note_for_index();
CREATE TRIGGER index_of_removed_end_users AFTER DELETE ON userflow_enduser
    REFERENCING OLD TABLE AS affected FOR EACH STATEMENT EXECUTE FUNCTION userflow_note_for_index();
CREATE TRIGGER index_of_changed_addresses AFTER UPDATE OF email_key ON userflow_enduser
    FOR EACH ROW WHEN (OLD.email_key <> NEW.email_key) EXECUTE FUNCTION userflow_note_for_index();
"""
_BACK = """
DROP TRIGGER index_of_changed_addresses ON userflow_enduser;
DROP TRIGGER index_of_removed_end_users ON userflow_enduser;
DROP TRIGGER index_of_added_end_users ON userflow_enduser;
DROP FUNCTION userflow_note_for_index();
"""


class Migration(migrations.Migration):
    dependencies = [
        # For `tenants_tell_revocation`.
        ("tenants", "0015_revocation_journal"),
        ("userflow", "0048_records"),
    ]

    operations = [
        migrations.CreateModel(
            name="UnindexedEndUser",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("user_id", models.UUIDField()),
                ("noted_at", models.DateTimeField(db_default=Now())),
            ],
            options={"abstract": False},
        ),
        migrations.RunSQL(_NOTE, _BACK, hints={"tenant": True}),
    ]
