"""The number of a tenant's end users by active, client and provider: a list filtered by these costs no count of its own.

As before the triggers never wait: a row of the table that another transaction holds is left to it (SKIP LOCKED), and a
new one is made where all of its kind are held. The trigger for changes looks at single rows, because only such a one can
be limited to some columns: the last sign-in, written by every login, must not start it.
"""

from django.db import migrations, models

_EMPTY = """
-- Against writers, until the end of this transaction: what they add meanwhile would be in no count.
LOCK TABLE userflow_enduser IN SHARE ROW EXCLUSIVE MODE;
DELETE FROM userflow_endusercount;
"""
_COUNT = """
CREATE FUNCTION userflow_count_end_users_by(change bigint, is_active boolean, of_client uuid, of_provider text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE userflow_endusercount SET users = users + change
    WHERE id = (
        SELECT id FROM userflow_endusercount
        WHERE provider = of_provider AND active = is_active AND client_id IS NOT DISTINCT FROM of_client
        ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        INSERT INTO userflow_endusercount (users, active, client_id, provider)
        VALUES (change, is_active, of_client, of_provider);
    END IF;
END
$$;
CREATE OR REPLACE FUNCTION userflow_count_end_users() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM userflow_count_end_users_by(kind.users, kind.active, kind.client_id, kind.provider) FROM
            (SELECT count(*) AS users, active, client_id, provider FROM after GROUP BY 2, 3, 4) AS kind;
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM userflow_count_end_users_by(-kind.users, kind.active, kind.client_id, kind.provider) FROM
            (SELECT count(*) AS users, active, client_id, provider FROM before GROUP BY 2, 3, 4) AS kind;
    ELSE
        PERFORM userflow_count_end_users_by(-1, OLD.active, OLD.client_id, OLD.provider);
        PERFORM userflow_count_end_users_by(1, NEW.active, NEW.client_id, NEW.provider);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER end_users_changed AFTER UPDATE OF active, client_id, provider ON userflow_enduser FOR EACH ROW
    WHEN ((OLD.active, OLD.client_id, OLD.provider) IS DISTINCT FROM (NEW.active, NEW.client_id, NEW.provider))
    EXECUTE FUNCTION userflow_count_end_users();
INSERT INTO userflow_endusercount (users, active, client_id, provider)
    SELECT count(*), active, client_id, provider FROM userflow_enduser GROUP BY 2, 3, 4;
"""
_BACK = """
LOCK TABLE userflow_enduser IN SHARE ROW EXCLUSIVE MODE;
DROP TRIGGER end_users_changed ON userflow_enduser;
CREATE OR REPLACE FUNCTION userflow_count_end_users() RETURNS trigger LANGUAGE plpgsql AS $$
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
DROP FUNCTION userflow_count_end_users_by(bigint, boolean, uuid, text);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0008_end_user_count"),
    ]

    operations = [
        migrations.RunSQL(_EMPTY, migrations.RunSQL.noop, hints={"tenant": True}),
        # The table is empty, so that no row needs what these say of it.
        migrations.AddField("endusercount", "active", models.BooleanField(default=True), preserve_default=False),
        migrations.AddField("endusercount", "client_id", models.UUIDField(null=True)),
        migrations.AddField(
            "endusercount", "provider", models.CharField(max_length=63, default=""), preserve_default=False
        ),
        migrations.AddIndex(
            "endusercount", models.Index(fields=["provider", "active", "client_id"], name="end_user_count_kind")
        ),
        migrations.RunSQL(_COUNT, _BACK, hints={"tenant": True}),
    ]
