"""Notes of revocations have the time at which they were made, not that at which their transaction began.

A transaction that began first and waited for another one revokes last.
"""

from django.db import migrations

_FUNCTIONS = """
CREATE OR REPLACE FUNCTION tenants_note_rows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE noted bigint;
BEGIN
    EXECUTE format(
        'INSERT INTO tenants_undeliveredrevocation (kind, digest, revoked, noted_at, ends_at) '
        'SELECT %L, sha256(convert_to(concat_ws('' '', %s), ''UTF8'')), %L, {clock}, now() FROM affected WHERE %s',
        TG_ARGV[0], TG_ARGV[1], TG_OP = 'DELETE', TG_ARGV[2]
    );
    GET DIAGNOSTICS noted = ROW_COUNT;
    IF noted > 0 THEN
        PERFORM tenants_tell_revocation();
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION tenants_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE statement text := format(
    'INSERT INTO tenants_undeliveredrevocation (kind, digest, revoked, noted_at, ends_at) '
    'SELECT %L, sha256(convert_to(concat_ws('' '', %s), ''UTF8'')), %L, {clock}, %s FROM (SELECT ($1).*) AS affected',
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


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0020_records"),
    ]

    operations = [
        migrations.RunSQL(
            _FUNCTIONS.replace("{clock}", "clock_timestamp()"),
            _FUNCTIONS.replace("{clock}", "now()"),
            hints={"tenant": True},
        ),
    ]
