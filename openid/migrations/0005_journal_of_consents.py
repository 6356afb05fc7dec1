"""A trigger that writes withdrawn consents for the journal (`tenants.revocations`)."""

from django.db import migrations

_TRIGGER = """
CREATE TRIGGER journal_of_consents AFTER DELETE ON openid_consent
    REFERENCING OLD TABLE AS affected FOR EACH STATEMENT
    EXECUTE FUNCTION tenants_note_rows('consent', 'id, (extract(epoch from created_at) * 1000000)::bigint', 'true');
"""


class Migration(migrations.Migration):
    dependencies = [
        ("openid", "0004_metadata_claims_of_consents"),
        ("tenants", "0015_revocation_journal"),
    ]

    operations = [
        migrations.RunSQL(_TRIGGER, migrations.RunSQL.noop, hints={"tenant": True}),
    ]
