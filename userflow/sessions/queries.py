"""Open an end user's session; find a browser's; and read the state of the session, its user and client, roles and groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

import orjson
from django.db import models

from identity_platform.audit.origin import current_origin
from identity_platform.audit.writer import count_events
from identity_platform.crypto import hash_token
from identity_platform.postgresql.model_columns import ModelColumns
from identity_platform.postgresql.statements import execute, fetch_row
from identity_platform.postgresql.values import SqlValue
from tenants.entering import lookup
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.session_models import EndUserSession, RefreshToken, Session
from userflow.credentials.attempts import Counter

# Names and permissions of roles, and names of groups, of the end user with the id {0}.
_RIGHTS = """
  (SELECT coalesce(json_agg(json_build_array(r.name, r.permissions)), '[]')::text FROM userflow_role r
    WHERE r.id IN (SELECT b.role_id FROM userflow_rolebinding b WHERE b.user_id = {0}
      UNION SELECT gr.role_id FROM userflow_groupmembership m JOIN userflow_group_roles gr ON gr.group_id = m.group_id
      WHERE m.user_id = {0})),
  (SELECT coalesce(json_agg(g.name), '[]')::text FROM userflow_groupmembership m
    JOIN userflow_group g ON g.id = m.group_id WHERE m.user_id = {0})
"""
# Roles of the admin user with the id {0}.
_ADMIN_ROLES = """
  (SELECT coalesce(json_agg(json_build_array(r.name, r.permissions)), '[]')::text FROM userflow_adminuser_roles b
    JOIN userflow_adminrole r ON r.id = b.adminrole_id WHERE b.adminuser_id = {0})
"""
# Open a session with its first refresh token, clear the counter of attempts at the last step, and audit the sign-in.
# The user first: the row lock makes a change of password at the same moment wait, or be seen here. No session that the old
# password has earned stays valid after the new one is set.
_OPEN_SESSION = """
WITH owner AS (
  UPDATE {users} SET last_login = %(session_auth_time)s
  WHERE id = %(session_user_id)s AND active AND password = %(password)s
    AND (NOT %(password_only)s OR mfa_methods = '[]')
  RETURNING id
), new_session AS (
  INSERT INTO userflow_{realm}session (id, user_id, client_id, amr, acr, auth_time, created_at, last_used_at, expires_at,
    ended_at, end_reason, address, user_agent{browser})
  SELECT %(session_id)s::uuid, owner.id, %(session_client_id)s::uuid, %(session_amr)s::jsonb, %(session_acr)s::text,
    %(session_auth_time)s::timestamptz, %(session_created_at)s::timestamptz, %(session_last_used_at)s::timestamptz,
    %(session_expires_at)s::timestamptz, %(session_ended_at)s::timestamptz, %(session_end_reason)s::text,
    %(session_address)s::text, %(session_user_agent)s::text{browser_value} FROM owner
  RETURNING id
), refresh_token AS (
  INSERT INTO userflow_{realm}refreshtoken (digest, issued_at, used_at, successor_sealed, session_id)
  SELECT %(refresh_digest)s::bytea, %(refresh_issued_at)s::timestamptz, %(refresh_used_at)s::timestamptz,
    %(refresh_successor_sealed)s::bytea, new_session.id FROM new_session
  WHERE %(refresh_digest)s::bytea IS NOT NULL
), cleared_attempts AS (
  UPDATE userflow_{realm}attempts a SET failures = 0, locked_until = NULL FROM owner
  WHERE a.subject = owner.id::text AND a.factor = %(factor)s AND a.caller = %(caller)s
), audit_event AS (
  INSERT INTO {events} (action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id, details{tenant})
  SELECT 'signin.succeeded', 'success', %(actor_kind)s::text, %(actor_id)s::text, 'user', owner.id::text,
    %(address)s::text, %(request_id)s::text, jsonb_build_object('amr', %(session_amr)s::jsonb){tenant_value}
  FROM owner
)
SELECT {rights} FROM owner
"""
_OPEN_END_USER_SESSION = _OPEN_SESSION.format(
    realm="enduser",
    users="userflow_enduser",
    browser=", browser_digest",
    browser_value=", %(session_browser_digest)s::bytea",
    events="audit_tenantevent",
    tenant="",
    tenant_value="",
    rights=_RIGHTS.format("owner.id"),
)
_OPEN_ADMIN_SESSION = _OPEN_SESSION.format(
    realm="admin",
    users="userflow_adminuser",
    browser="",
    browser_value="",
    events="audit_platformevent",
    tenant=", tenant_id",
    tenant_value=", %(tenant_id)s::uuid",
    rights=_ADMIN_ROLES.format("owner.id") + ", '[]'",
)
# Open the session of an application that a browser's session signs in. The opener's row lock makes an end of that session at
# the same moment wait, and end its child too, or be seen here. The session of a device has no parent.
_OPEN_APPLICATION_SESSION = f"""
WITH opener AS (
  SELECT p.id, p.user_id FROM userflow_endusersession p JOIN userflow_enduser u ON u.id = p.user_id
  WHERE p.id = %(opener_id)s AND p.browser_digest IS NOT NULL AND p.ended_at IS NULL AND p.expires_at > now()
    AND u.active
  FOR NO KEY UPDATE OF p
), child AS (
  INSERT INTO userflow_endusersession (id, user_id, parent_id, client_id, amr, acr, auth_time, created_at, last_used_at,
    expires_at, end_reason, address, user_agent, scopes, audiences, id_token_claims, userinfo_claims, dpop_jkt,
    backchannel_logout)
  SELECT %(session_id)s::uuid, opener.user_id, %(session_parent_id)s::uuid, %(session_client_id)s::uuid,
    %(session_amr)s::jsonb, %(session_acr)s::text, %(session_auth_time)s::timestamptz, %(session_created_at)s::timestamptz,
    %(session_last_used_at)s::timestamptz, %(session_expires_at)s::timestamptz, %(session_end_reason)s::text,
    %(session_address)s::text, %(session_user_agent)s::text, %(session_scopes)s::jsonb, %(session_audiences)s::jsonb,
    %(session_id_token_claims)s::jsonb, %(session_userinfo_claims)s::jsonb, %(session_dpop_jkt)s::text,
    %(session_backchannel_logout)s::boolean
  FROM opener
  RETURNING id
), refresh_token AS (
  INSERT INTO userflow_enduserrefreshtoken (digest, issued_at, session_id)
  SELECT %(digest)s::bytea, %(session_created_at)s::timestamptz, child.id FROM child WHERE %(digest)s::bytea IS NOT NULL
), audit_event AS (
  INSERT INTO audit_tenantevent (action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id, details)
  SELECT 'application.signed_in', 'success', 'end_user', opener.user_id::text, 'session', child.id::text,
    %(address)s::text, %(request_id)s::text,
    jsonb_build_object('client_id', %(session_client_id)s::text, 'scopes', %(session_scopes)s::jsonb) FROM opener, child
)
SELECT {_RIGHTS.format("opener.user_id")} FROM opener
"""

SESSION = ModelColumns(EndUserSession)
USER = ModelColumns(EndUser)
_BROWSER_SESSION = f"""
SELECT {SESSION.of("n")}, {USER.of("u")}
FROM userflow_endusersession n JOIN userflow_enduser u ON u.id = n.user_id
WHERE n.browser_digest = %s AND n.ended_at IS NULL AND n.expires_at > %s AND u.active
"""

# The state of an access token is read by every authorized request. Those of end users and clients begin with the record of the
# entered tenant. Times since the session was opened and last used are seconds by the database's clock.
ADMIN_STATE = f"""
SELECT {lookup.COLUMNS},
  extract(epoch FROM now() - n.created_at)::float, extract(epoch FROM now() - n.last_used_at)::float,
  extract(epoch FROM n.auth_time)::float, n.amr::text, n.acr, u.username, u.email, u.tenant_id, u.mfa_methods::text,
  {_ADMIN_ROLES.format("u.id")}
FROM userflow_adminsession n JOIN userflow_adminuser u ON u.id = n.user_id
  LEFT JOIN tenants_tenant t ON t.id = u.tenant_id LEFT JOIN tenants_tenantdatabase d ON d.tenant_id = t.id
  LEFT JOIN tenants_databaseserver s ON s.id = d.server_id
WHERE n.id = %s AND u.id = %s AND u.active AND n.ended_at IS NULL AND n.expires_at > now()
"""
# Of a client `c`, which need not exist, as `verify.ClientState` holds it.
_CLIENT_STATE = """
  c.active, c.name, c.project_id, c.generation, c.first_party, c.first_party AND c.direct_sign_in,
  c.access_token_seconds, c.access_token_signed_response_alg, c.security_profile, c.scopes::text, c.audiences::text
"""
CLIENT_STATE_WIDTH = 11
CLIENT_STATE = f"""
SELECT {lookup.RECORD_COLUMNS}, {_CLIENT_STATE}, EXISTS (SELECT FROM userflow_tenantrevokedtoken WHERE jti = %(jti)s)
FROM {lookup.RECORD_TABLE} r LEFT JOIN userflow_tenantclient c ON c.id = %(client_id)s
"""
# A client `{0}` as `client_authentication.StoredClient` holds it after its tenant. All columns of one took twice the time.
_STORED_CLIENT = """
  {0}.id, {0}.type, {0}.active, {0}.secret_digest,
  CASE WHEN {0}.previous_secret_until > now() THEN {0}.previous_secret_digest END,
  {0}.token_endpoint_auth_method, {0}.jwks_uri, {0}.generation, {0}.first_party, {0}.first_party AND {0}.direct_sign_in,
  {0}.access_token_seconds, {0}.access_token_signed_response_alg,
  {0}.dpop_bound_access_tokens, {0}.tls_client_certificate_bound_access_tokens, {0}.refresh_token_rotation,
  {0}.security_profile, {0}.id_token_signed_response_alg, {0}.backchannel_logout_uri,
  {0}.jwks::text, {0}.scopes::text, {0}.audiences::text, {0}.grant_types::text,
  CASE WHEN {0}.token_endpoint_auth_method = 'tls_client_auth' THEN jsonb_build_object(
    'tls_client_auth_subject_dn', {0}.tls_client_auth_subject_dn, 'tls_client_auth_san_dns', {0}.tls_client_auth_san_dns,
    'tls_client_auth_san_uri', {0}.tls_client_auth_san_uri, 'tls_client_auth_san_ip', {0}.tls_client_auth_san_ip,
    'tls_client_auth_san_email', {0}.tls_client_auth_san_email,
    'tls_client_auth_authorities', {0}.tls_client_auth_authorities)::text END
"""
STORED_CLIENT_WIDTH = 23
STORED_CLIENT = f"""
SELECT {lookup.RECORD_COLUMNS}, {_STORED_CLIENT.format("c")}
FROM {lookup.RECORD_TABLE} r LEFT JOIN userflow_tenantclient c ON c.id = %s
"""
# An application's session has the age of the browser's: the absolute limit counts from the sign-in.
# Of a session `n`, its user `u` and the browser's session `p` that it belongs to.
_STATE = f"""
  extract(epoch FROM now() - coalesce(p.created_at, n.created_at))::float,
  extract(epoch FROM now() - n.last_used_at)::float,
  u.email, u.name, u.mfa_methods::text, u.email_verified_at IS NOT NULL,
  {_RIGHTS.format("u.id")},
  n.parent_id IS NOT NULL OR n.audiences <> '[]', n.scopes::text, n.audiences::text, n.dpop_jkt
"""
# The session need not exist: then the columns after those of the client are null.
_FROM_RECORD = f"""
FROM {lookup.RECORD_TABLE} r LEFT JOIN userflow_tenantclient c ON c.id = %(client_id)s
  LEFT JOIN (userflow_endusersession n JOIN userflow_enduser u ON u.id = n.user_id
    LEFT JOIN userflow_endusersession p ON p.id = n.parent_id)
  ON n.id = %(sid)s AND u.id = %(sub)s AND u.active AND n.ended_at IS NULL AND n.expires_at > now()
"""
END_USER_STATE = f"SELECT {lookup.RECORD_COLUMNS}, {_CLIENT_STATE}, {_STATE} {_FROM_RECORD}"


def end_user_state_and(columns: str) -> str:
    """Return END_USER_STATE with further columns of the session `n` and its user `u`, for `verify.principal_and`."""
    return f"SELECT {lookup.RECORD_COLUMNS}, {_CLIENT_STATE}, {_STATE}, {columns} {_FROM_RECORD}"


END_USER_STATE_AND_SESSION = end_user_state_and(f"{SESSION.of('n')}, {USER.of('u')}")
STATE_WIDTH = 12
# A client that asks about a token, and the state of that: CLIENT_STATE and END_USER_STATE.
INTROSPECTION = f"""
SELECT {lookup.RECORD_COLUMNS}, {_STORED_CLIENT.format("k")}, {_CLIENT_STATE},
  EXISTS (SELECT FROM userflow_tenantrevokedtoken WHERE jti = %(jti)s), {_STATE}
{_FROM_RECORD} LEFT JOIN userflow_tenantclient k ON k.id = %(caller_id)s
"""
# A refresh token with its session, ended or not, and whether that is active; the session's user and claims, for an ID token;
# and the state of END_USER_STATE. Times are seconds.
END_USER_REFRESH_TOKEN = f"""
SELECT l.used_at IS NOT NULL, extract(epoch FROM l.issued_at)::float, n.id, n.user_id, n.client_id, n.amr::text, n.acr,
  extract(epoch FROM n.auth_time)::float, extract(epoch FROM coalesce(p.created_at, n.created_at))::float,
  extract(epoch FROM n.expires_at)::float, n.dpop_jkt, %(tenant_id)s::uuid,
  u.active AND n.ended_at IS NULL AND n.expires_at > now(), n.id_token_claims::text, {USER.of("u")}, {_STATE}
FROM userflow_enduserrefreshtoken l JOIN userflow_endusersession n ON n.id = l.session_id
  JOIN userflow_enduser u ON u.id = n.user_id LEFT JOIN userflow_endusersession p ON p.id = n.parent_id
WHERE l.digest = %(digest)s
"""
# Its columns before those of the user, and before the state.
REFRESH_TOKEN_WIDTH = 14
REFRESHED_USER_WIDTH = REFRESH_TOKEN_WIDTH + len(USER)
ADMIN_REFRESH_TOKEN = """
SELECT l.used_at IS NOT NULL, extract(epoch FROM l.issued_at)::float, n.id, n.user_id, n.client_id, n.amr::text, n.acr,
  extract(epoch FROM n.auth_time)::float, extract(epoch FROM n.created_at)::float,
  extract(epoch FROM n.expires_at)::float, '', u.tenant_id
FROM userflow_adminrefreshtoken l JOIN userflow_adminsession n ON n.id = l.session_id
  JOIN userflow_adminuser u ON u.id = n.user_id WHERE l.digest = %(digest)s
"""
# Use a refresh token, store its successor and extend the session. The use of this token shows that its holder received it:
# a caller that still presents its predecessor is another one, and must not get the response that was kept for a race.
# The tables of admin users and end users differ in their names only.
_ROTATE = """
WITH used AS (
  UPDATE {refresh_tokens} SET used_at = %(now)s, successor_sealed = %(successor_sealed)s
  WHERE digest = %(digest)s AND used_at IS NULL RETURNING session_id
), emptied AS (
  UPDATE {refresh_tokens} t SET successor_sealed = NULL FROM used
  WHERE t.session_id = used.session_id AND t.successor_sealed IS NOT NULL AND t.digest <> %(digest)s
), successor AS (
  INSERT INTO {refresh_tokens} (digest, issued_at, session_id) SELECT %(successor)s, %(now)s, session_id FROM used
)
UPDATE {sessions} s SET last_used_at = %(now)s, expires_at = %(expires_at)s{changed_key} FROM used WHERE s.id = used.session_id
"""

# Of a token that stays the session's: it is locked, so that a revocation at the same time ends it or comes after.
_EXTEND = """
WITH unused AS (
  SELECT session_id FROM {refresh_tokens} WHERE digest = %(digest)s AND used_at IS NULL FOR SHARE
)
UPDATE {sessions} s SET last_used_at = %(now)s, expires_at = %(expires_at)s{changed_key} FROM unused
WHERE s.id = unused.session_id
"""


@dataclass(frozen=True, slots=True)
class Rights:
    """Role names, permissions and group names of a user as stored now, each sorted."""

    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    groups: tuple[str, ...] = ()


def open_session(
    realm: Realm,
    session: Session,
    token: RefreshToken,
    *,
    tenant_id: UUID | None,
    password: str,
    password_only: bool,
    cleared: Counter | None,
) -> Rights | None:
    """Store an unsaved session and its first refresh token, clear the counter `cleared` and audit the sign-in.

    Return the user's rights. Return None, with nothing written, if the user is inactive, has another password hash by now,
    or with `password_only` has a factor.
    """
    values: dict[str, SqlValue] = {
        **column_values(session, "session"),
        **column_values(token, "refresh"),
        "tenant_id": tenant_id,
        "password": password,
        "password_only": password_only,
        "factor": cleared.factor if cleared else None,
        "caller": cleared.caller if cleared else None,
        **current_origin().audit_columns(),
    }
    row = fetch_row(realm.alias, _OPEN_END_USER_SESSION if realm is END_USERS else _OPEN_ADMIN_SESSION, values)
    if row is None:
        return None
    count_events(realm.alias, "signin.succeeded")
    return rights_in(*row)


def open_application_session(session: EndUserSession, refresh_token: str | None, *, opener_id: UUID) -> Rights | None:
    """Store the unsaved session of an application, and its first refresh token if there is one; audit it.

    Return the user's rights. Return None, with nothing written, if the opener is no active session of a browser.
    """
    values: dict[str, SqlValue] = {
        **column_values(session, "session"),
        "opener_id": opener_id,
        "digest": hash_token(refresh_token) if refresh_token else None,
        **current_origin().audit_columns(),
    }
    row = fetch_row("tenant", _OPEN_APPLICATION_SESSION, values)
    if row is None:
        return None
    count_events("tenant", "application.signed_in")
    return rights_in(*row)


def find_browser_session(digest: bytes, moment: datetime) -> EndUserSession | None:
    """Return the session of the browser whose cookie has this digest, with its user, if both are active at that moment."""
    row = fetch_row("tenant", _BROWSER_SESSION, [digest, moment])
    return None if row is None else session_with_user(row)


def session_with_user(row: Sequence[object]) -> EndUserSession:
    """Return a session and its user from the columns of SESSION, then USER."""
    session = SESSION.row("tenant", row[: len(SESSION)])
    session.user = USER.row("tenant", row[len(SESSION) :])
    return session


def rotate(
    realm: Realm,
    *,
    digest: bytes,
    moment: datetime,
    expires_at: datetime,
    successor: bytes,
    successor_sealed: bytes,
    binding: str | None = None,
) -> bool:
    """Use the refresh token `digest` at `moment` and store its successor. Return False if it was used before.

    With `binding` the session of an end user is bound to this key or certificate from now on.
    """
    values = {"successor": successor, "successor_sealed": successor_sealed}
    return _refresh(realm, _ROTATE, binding, digest=digest, now=moment, expires_at=expires_at, **values)


def extend(realm: Realm, *, digest: bytes, moment: datetime, expires_at: datetime, binding: str | None = None) -> bool:
    """Extend the session of the refresh token `digest`, which stays as it is. Return False if it was used before.

    With `binding` the session of an end user is bound to this key or certificate from now on.
    """
    return _refresh(realm, _EXTEND, binding, digest=digest, now=moment, expires_at=expires_at)


def _refresh(realm: Realm, statement: str, binding: str | None, **values: SqlValue) -> bool:
    text = statement.format(
        refresh_tokens=realm.refresh_tokens._meta.db_table,
        sessions=realm.sessions._meta.db_table,
        changed_key="" if binding is None else ", dpop_jkt = %(dpop_jkt)s",
    )
    return bool(execute(realm.alias, text, {**values, "dpop_jkt": binding}))


def column_values(row: models.Model, prefix: str) -> Mapping[str, SqlValue]:
    """Return the column values of an unsaved row as Django would insert them, named `prefix_column`; documents as text."""
    values = ((name, field.pre_save(row, add=True), is_json) for name, field, is_json in _columns(type(row), prefix))
    return {name: orjson.dumps(value).decode() if is_json else value for name, value, is_json in values}


@cache
def _columns(model: type[models.Model], prefix: str) -> tuple[tuple[str, "models.Field[Any, Any]", bool], ...]:
    fields = model._meta.concrete_fields
    return tuple((f"{prefix}_{field.column}", field, isinstance(field, models.JSONField)) for field in fields)


def rights_in(roles: str, groups: str) -> Rights:
    """Return the rights from the roles and groups of a statement here."""
    names, permissions = roles_in(roles)
    return Rights(names, tuple(sorted(permissions)), groups_in(groups))


def roles_in(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return names and permissions from the roles of a statement here."""
    roles = orjson.loads(text)
    return tuple(sorted(name for name, _ in roles)), frozenset(p for _, permissions in roles for p in permissions)


def groups_in(text: str) -> tuple[str, ...]:
    """Return the names from the groups of a statement here."""
    return tuple(sorted(orjson.loads(text)))
