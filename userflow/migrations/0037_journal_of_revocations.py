"""Triggers that write revocations of users, roles, groups, keys and webhooks for the journal (`tenants.journals.revocations`).

Triggers of rows that change name their columns, so a sign-in, which writes others, does not run them.
"""

import re

from django.db import migrations

_DELETED = """
CREATE TRIGGER journal_of_{name} AFTER DELETE ON {table}
    REFERENCING OLD TABLE AS affected FOR EACH STATEMENT
    EXECUTE FUNCTION tenants_note_rows('{kind}', '{columns}', '{condition}');
"""
_CHANGED = """
CREATE TRIGGER journal_of_{name} AFTER UPDATE OF {changed} ON {table}
    FOR EACH ROW WHEN ({when})
    EXECUTE FUNCTION tenants_note_change('{kind}', '{columns}', '{row}', '{revoked}', '{ends}');
"""
_MEMBER = "id, (extract(epoch from created_at) * 1000000)::bigint"
_WEBHOOK = "id, url, events, md5(secret_sealed)"


def _deleted(name: str, table: str, kind: str, columns: str = "id", condition: str = "true") -> str:
    return _DELETED.format(name=name, table=table, kind=kind, columns=columns, condition=condition)


def _changed(
    name: str,
    table: str,
    changed: str,
    when: str,
    kind: str,
    columns: str = "id",
    *,
    row: str = "old",
    revoked: bool = True,
    ends: str = "now()",
) -> str:
    return _CHANGED.format(
        name=name,
        table=table,
        changed=changed,
        when=when,
        kind=kind,
        columns=columns,
        row=row,
        revoked=revoked,
        ends=ends,
    )


_USER, _ENDPOINT = "userflow_enduser", "userflow_webhookendpoint"
_ACTIVATED, _ENABLED = "NEW.active AND NOT OLD.active", "NEW.client_id IS NULL AND NEW.enabled AND NOT OLD.enabled"
_REPLACED = (
    "NEW.client_id IS NULL AND (OLD.url, OLD.events, OLD.secret_sealed)"
    " IS DISTINCT FROM (NEW.url, NEW.events, NEW.secret_sealed)"
)
_TRIGGERS = "".join(
    [
        _deleted("erased_users", _USER, "erased user"),
        _changed("deactivated_users", _USER, "active", "OLD.active AND NOT NEW.active", "deactivated user"),
        _changed("activated_users", _USER, "active", _ACTIVATED, "deactivated user", row="new", revoked=False),
        # An admin who activates a user vouches for the address too.
        _changed(
            "vouched_addresses",
            _USER,
            "active",
            _ACTIVATED,
            "replaced address",
            "id, email_key",
            row="new",
            revoked=False,
        ),
        # A password that is only hashed again, at a sign-in, leaves `updated_at` as it is.
        _changed(
            "replaced_passwords",
            _USER,
            "password",
            "OLD.password <> NEW.password AND OLD.password <> '' AND OLD.updated_at <> NEW.updated_at",
            "replaced password",
            "id, password",
        ),
        _changed(
            "replaced_addresses",
            _USER,
            "email_key",
            "OLD.email_key <> NEW.email_key",
            "replaced address",
            "id, email_key",
        ),
        _changed(
            "new_addresses",
            _USER,
            "email_key",
            "OLD.email_key <> NEW.email_key",
            "replaced address",
            "id, email_key",
            row="new",
            revoked=False,
        ),
        # The password alone signs in until the first factor, and again when the last one is gone.
        _changed(
            "first_factors",
            _USER,
            "mfa_methods",
            "OLD.mfa_methods = '[]' AND NEW.mfa_methods <> '[]'",
            "password without factor",
        ),
        _changed(
            "last_factors",
            _USER,
            "mfa_methods",
            "OLD.mfa_methods <> '[]' AND NEW.mfa_methods = '[]'",
            "password without factor",
            row="new",
            revoked=False,
        ),
        _deleted("roles", "userflow_role", "role"),
        _deleted("role_bindings", "userflow_rolebinding", "role of user", _MEMBER),
        _deleted("groups", "userflow_group", "group"),
        _deleted("memberships", "userflow_groupmembership", "member of group", _MEMBER),
        _deleted("group_roles", "userflow_group_roles", "role of group", "group_id, role_id"),
        _changed(
            "signing_keys",
            "userflow_tenantsigningkey",
            "verifies_until",
            "NEW.verifies_until IS NOT NULL AND NEW.verifies_until IS DISTINCT FROM OLD.verifies_until",
            "signing key",
            "kid",
            row="new",
            ends="verifies_until",
        ),
        _deleted("endpoints", _ENDPOINT, "webhook endpoint", "id", "client_id IS NULL"),
        _changed(
            "disabled_endpoints",
            _ENDPOINT,
            "enabled",
            "NEW.client_id IS NULL AND OLD.enabled AND NOT NEW.enabled",
            "disabled webhook endpoint",
        ),
        _changed(
            "enabled_endpoints", _ENDPOINT, "enabled", _ENABLED, "disabled webhook endpoint", row="new", revoked=False
        ),
        _changed(
            "vouched_endpoints",
            _ENDPOINT,
            "enabled",
            _ENABLED,
            "replaced webhook endpoint",
            _WEBHOOK,
            row="new",
            revoked=False,
        ),
        _changed(
            "replaced_endpoints",
            _ENDPOINT,
            "url, events, secret_sealed",
            _REPLACED,
            "replaced webhook endpoint",
            _WEBHOOK,
        ),
        _changed(
            "new_endpoints",
            _ENDPOINT,
            "url, events, secret_sealed",
            _REPLACED,
            "replaced webhook endpoint",
            _WEBHOOK,
            row="new",
            revoked=False,
        ),
    ]
)
_OTHERS = """
CREATE TRIGGER journal_of_granted_group_roles AFTER INSERT ON userflow_group_roles
    REFERENCING NEW TABLE AS affected FOR EACH STATEMENT
    EXECUTE FUNCTION tenants_note_rows('role of group', 'group_id, role_id', 'true');

CREATE FUNCTION userflow_note_permissions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenants_undeliveredrevocation (kind, digest, revoked, noted_at, ends_at)
        SELECT TG_ARGV[0], sha256(convert_to(concat_ws(' ', NEW.id, changed.permission), 'UTF8')), changed.revoked, now(), now()
        FROM (
            SELECT permission, true AS revoked FROM jsonb_array_elements_text(OLD.permissions) AS permission
                WHERE NOT NEW.permissions @> to_jsonb(permission)
            UNION ALL SELECT permission, false FROM jsonb_array_elements_text(NEW.permissions) AS permission
                WHERE NOT OLD.permissions @> to_jsonb(permission)
        ) AS changed;
    PERFORM tenants_tell_revocation();
    RETURN NULL;
END
$$;
CREATE TRIGGER journal_of_permissions AFTER UPDATE OF permissions ON userflow_role
    FOR EACH ROW WHEN (OLD.permissions <> NEW.permissions)
    EXECUTE FUNCTION userflow_note_permissions('permission of role', 'id, permission');
"""
# Backwards, so that the migration can be applied again.
_BACK = (
    "".join(
        f"DROP TRIGGER {name} ON {table};"
        for name, table in re.findall(
            r"CREATE TRIGGER (\w+) AFTER (?:DELETE|INSERT|UPDATE OF [\w, ]+) ON (\w+)", _TRIGGERS + _OTHERS
        )
    )
    + "DROP FUNCTION userflow_note_permissions();"
)


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0036_app_metadata_and_external_id"),
        ("tenants", "0015_revocation_journal"),
    ]

    operations = [
        migrations.RunSQL(_TRIGGERS + _OTHERS, _BACK, hints={"tenant": True}),
    ]
