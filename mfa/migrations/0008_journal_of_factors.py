"""Triggers that write removed factors and used backup codes for the journal (`tenants.journals.revocations`)."""

import re

from django.db import migrations

_DELETED = """
CREATE TRIGGER journal_of_{name} AFTER DELETE ON mfa_{table}
    REFERENCING OLD TABLE AS affected FOR EACH STATEMENT
    EXECUTE FUNCTION tenants_note_rows('{kind}', '{columns}', '{condition}');
"""
_TRIGGERS = (
    _DELETED.format(name="passkeys", table="enduserpasskey", kind="passkey", columns="id", condition="true")
    + _DELETED.format(
        name="totp_secrets",
        table="endusertotpsecret",
        kind="authenticator app",
        columns="id",
        condition="confirmed_at IS NOT NULL",
    )
    + _DELETED.format(name="phones", table="phone", kind="phone", columns="id", condition="true")
    + _DELETED.format(name="push_devices", table="pushdevice", kind="push device", columns="id", condition="true")
    + _DELETED.format(
        name="backup_codes",
        table="enduserbackupcode",
        kind="backup code",
        columns="user_id, md5(digest)",
        condition="used_at IS NULL",
    )
    + """
CREATE TRIGGER journal_of_used_backup_codes AFTER UPDATE OF used_at ON mfa_enduserbackupcode
    FOR EACH ROW WHEN (OLD.used_at IS NULL AND NEW.used_at IS NOT NULL)
    EXECUTE FUNCTION tenants_note_change('backup code', 'user_id, md5(digest)', 'old', 'true', 'now()');
"""
)
# Backwards, so that the migration can be applied again.
_BACK = "".join(
    f"DROP TRIGGER {name} ON {table};"
    for name, table in re.findall(r"CREATE TRIGGER (\w+) AFTER (?:DELETE|INSERT|UPDATE OF [\w, ]+) ON (\w+)", _TRIGGERS)
)


class Migration(migrations.Migration):
    dependencies = [
        ("mfa", "0007_relying_party_of_passkeys"),
        ("tenants", "0015_revocation_journal"),
    ]

    operations = [
        migrations.RunSQL(_TRIGGERS, _BACK, hints={"tenant": True}),
    ]
