"""Triggers that write replaced passwords for the journal by the time at which they were set, which a new hash of them keeps.

Those of 0037 stay: backups of releases without `password_changed_at` are compared with what they write.
"""

from django.db import migrations

_TRIGGER = """
CREATE TRIGGER {name} AFTER UPDATE OF {changed} ON userflow_enduser
    FOR EACH ROW WHEN ({when})
    EXECUTE FUNCTION tenants_note_change(
        '{kind}', 'id, (extract(epoch from password_changed_at) * 1000000)::bigint', '{row}', '{revoked}', 'now()'
    );
"""
_CHANGED = "OLD.password_changed_at <> NEW.password_changed_at AND OLD.password <> ''"
_FIRST = "OLD.mfa_methods = '[]' AND NEW.mfa_methods <> '[]'"
_LAST = "OLD.mfa_methods <> '[]' AND NEW.mfa_methods = '[]'"
# Name, columns, condition, kind, which row, revoked.
_ALL = (
    ("journal_of_changed_passwords", "password_changed_at", _CHANGED, "changed password", "old", True),
    # The password alone signs in until the first factor, and again when the last one is gone.
    ("journal_of_guarded_passwords", "mfa_methods", _FIRST, "password alone", "old", True),
    ("journal_of_passwords_alone", "mfa_methods", _LAST, "password alone", "new", False),
)
_TRIGGERS = "".join(
    _TRIGGER.format(name=name, changed=changed, when=when, kind=kind, row=row, revoked=revoked)
    for name, changed, when, kind, row, revoked in _ALL
)
_BACK = "".join(f"DROP TRIGGER {name} ON userflow_enduser;" for name, *_ in _ALL)


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0037_journal_of_revocations"),
    ]

    operations = [
        migrations.RunSQL(_TRIGGERS, _BACK, hints={"tenant": True}),
    ]
