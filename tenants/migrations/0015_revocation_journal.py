"""The journal of revocations: its table, and in tenants' databases what waits for it and the functions of the triggers.

The triggers of each app are in its own migration. What identifies a revoked authority is in their arguments, as in the models:
a test compares both.
"""

from django.db import migrations, models

_FUNCTIONS = """
-- Tell the client once a transaction, by a message that no other code sends: it delivers the rows after the commit.
CREATE FUNCTION tenants_tell_revocation() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('identity.revocation', true) IS DISTINCT FROM txid_current()::text THEN
        PERFORM set_config('identity.revocation', txid_current()::text, true);
        RAISE INFO 'identity: revocation noted';
    END IF;
END
$$;

-- Arguments: kind, columns, condition. Deleted rows are revoked, inserted ones are granted again.
CREATE FUNCTION tenants_note_rows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE noted bigint;
BEGIN
    EXECUTE format(
        'INSERT INTO tenants_undeliveredrevocation (kind, digest, revoked, noted_at, ends_at) '
        'SELECT %L, sha256(convert_to(concat_ws('' '', %s), ''UTF8'')), %L, now(), now() FROM affected WHERE %s',
        TG_ARGV[0], TG_ARGV[1], TG_OP = 'DELETE', TG_ARGV[2]
    );
    GET DIAGNOSTICS noted = ROW_COUNT;
    IF noted > 0 THEN
        PERFORM tenants_tell_revocation();
    END IF;
    RETURN NULL;
END
$$;

-- Arguments: kind, columns, old or new row, revoked or not, when it takes effect.
CREATE FUNCTION tenants_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE statement text := format(
    'INSERT INTO tenants_undeliveredrevocation (kind, digest, revoked, noted_at, ends_at) '
    'SELECT %L, sha256(convert_to(concat_ws('' '', %s), ''UTF8'')), %L, now(), %s FROM (SELECT ($1).*) AS affected',
    TG_ARGV[0], TG_ARGV[1], TG_ARGV[3], TG_ARGV[4]
);
BEGIN
    IF TG_ARGV[2] = 'old' THEN
        EXECUTE statement USING OLD;
    ELSE
        EXECUTE statement USING NEW;
    END IF;
    PERFORM tenants_tell_revocation();
    RETURN NULL;
END
$$;
"""
_BACK = """
DROP FUNCTION tenants_note_change();
DROP FUNCTION tenants_note_rows();
DROP FUNCTION tenants_tell_revocation();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0014_attention"),
    ]

    operations = [
        migrations.CreateModel(
            name="UndeliveredRevocation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=40)),
                ("digest", models.BinaryField()),
                ("revoked", models.BooleanField()),
                ("noted_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="JournaledRevocation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tenant_id", models.UUIDField()),
                ("kind", models.CharField(max_length=40)),
                ("digest", models.BinaryField()),
                ("revoked", models.BooleanField()),
                ("noted_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["noted_at"], name="journaled_revocation_age")],
                "constraints": [
                    models.UniqueConstraint(fields=("tenant_id", "kind", "digest"), name="journaled_revocation_unique")
                ],
            },
        ),
        migrations.RunSQL(_FUNCTIONS, _BACK, hints={"tenant": True}),
    ]
