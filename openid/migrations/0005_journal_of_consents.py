"""A trigger that writes withdrawn consents for the journal (`tenants.journals.revocations`)."""

import re

from django.db import migrations

_TRIGGER = """
CREATE TRIGGER journal_of_consents AFTER DELETE ON openid_consent
    REFERENCING OLD TABLE AS affected FOR EACH STATEMENT
    EXECUTE FUNCTION tenants_note_rows('consent', 'id, (extract(epoch from created_at) * 1000000)::bigint', 'true');
"""
# Backwards, so that the migration can be applied again.
_BACK = "".join(
    f"DROP TRIGGER {name} ON {table};"
    for name, table in re.findall(r"CREATE TRIGGER (\w+) AFTER (?:DELETE|INSERT|UPDATE OF [\w, ]+) ON (\w+)", _TRIGGER)
)


class Migration(migrations.Migration):
    dependencies = [
        ("openid", "0004_metadata_claims_of_consents"),
        ("tenants", "0015_revocation_journal"),
    ]

    operations = [
        migrations.RunSQL(_TRIGGER, _BACK, hints={"tenant": True}),
    ]
