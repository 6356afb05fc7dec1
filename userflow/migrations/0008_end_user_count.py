"""The number of a tenant's end users, kept by triggers: a list's total costs the same with ten people and with a million.

The triggers run once a statement, so an import of many people pays once. They never wait: a row of the table that
another transaction holds is left to it (SKIP LOCKED), and a new one is made where all are held.
"""

from django.db import migrations, models

_COUNT = """
CREATE FUNCTION userflow_count_end_users() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE change bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT count(*) INTO change FROM after;
    ELSE
        SELECT -count(*) INTO change FROM before;
    END IF;
    IF change <> 0 THEN
        UPDATE userflow_endusercount SET users = users + change
        WHERE id = (SELECT id FROM userflow_endusercount ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);
        IF NOT FOUND THEN
            INSERT INTO userflow_endusercount (users) VALUES (change);
        END IF;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER end_users_added AFTER INSERT ON userflow_enduser
    REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION userflow_count_end_users();
CREATE TRIGGER end_users_removed AFTER DELETE ON userflow_enduser
    REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION userflow_count_end_users();
-- Making the triggers has locked the table against writers until the end of this transaction.
INSERT INTO userflow_endusercount (users) SELECT count(*) FROM userflow_enduser;
"""
_BACK = """
DROP TRIGGER end_users_added ON userflow_enduser;
DROP TRIGGER end_users_removed ON userflow_enduser;
DROP FUNCTION userflow_count_end_users();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0007_directories"),
    ]

    operations = [
        migrations.CreateModel(
            name="EndUserCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("users", models.BigIntegerField()),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.RunSQL(_COUNT, _BACK, hints={"tenant": True}),
    ]
