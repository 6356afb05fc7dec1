"""Open an end user's session; and read the state of the session, its user and client, roles and groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import orjson
from django.db import connections, models

from identity_platform.audit.origin import current_origin
from identity_platform.postgresql.values import SqlValue
from tenants import lookup
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.session_models import UserRefreshToken, UserSession
from userflow.credentials.attempts import Counter
from userflow.sessions.client_usage import STALE_USE

# Open a session with its first refresh token, clear the counter of attempts at the last step, and audit the sign-in.
# The user first: the row lock makes a change of password at the same moment wait, or be seen here. No session that the old
# password has earned stays valid after the new one is set.
_OPEN_END_USER_SESSION = """
WITH owner AS (
  UPDATE userflow_enduser SET last_login = %(session_auth_time)s
  WHERE id = %(session_user_id)s AND active AND password = %(password)s
    AND (NOT %(password_only)s OR mfa_methods = '[]')
  RETURNING id
), new_session AS (
  INSERT INTO userflow_endusersession (id, user_id, client_id, amr, acr, auth_time, created_at, last_used_at, expires_at,
    ended_at, end_reason, address, user_agent)
  SELECT %(session_id)s::uuid, owner.id, %(session_client_id)s::uuid, %(session_amr)s::jsonb, %(session_acr)s::text,
    %(session_auth_time)s::timestamptz, %(session_created_at)s::timestamptz, %(session_last_used_at)s::timestamptz,
    %(session_expires_at)s::timestamptz, %(session_ended_at)s::timestamptz, %(session_end_reason)s::text,
    %(session_address)s::text, %(session_user_agent)s::text FROM owner
  RETURNING id
), refresh_token AS (
  INSERT INTO userflow_enduserrefreshtoken (digest, issued_at, used_at, successor_sealed, session_id)
  SELECT %(refresh_digest)s::bytea, %(refresh_issued_at)s::timestamptz, %(refresh_used_at)s::timestamptz,
    %(refresh_successor_sealed)s::bytea, new_session.id FROM new_session
), cleared_attempts AS (
  DELETE FROM userflow_enduserattempts a USING owner
  WHERE a.subject = owner.id::text AND a.factor = %(factor)s AND a.caller = %(caller)s
), audit_event AS (
  INSERT INTO audit_tenantevent (action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id, details)
  SELECT 'signin.succeeded', 'success', %(actor_kind)s::text, %(actor_id)s::text, 'user', owner.id::text,
    %(origin_address)s::text, %(request_id)s::text, jsonb_build_object('amr', %(session_amr)s::jsonb) FROM owner
)
SELECT
  (SELECT coalesce(json_agg(json_build_array(r.name, r.permissions)), '[]')::text FROM userflow_role r
    WHERE r.id IN (SELECT b.role_id FROM userflow_rolebinding b WHERE b.user_id = owner.id
      UNION SELECT gr.role_id FROM userflow_groupmembership m JOIN userflow_group_roles gr ON gr.group_id = m.group_id
      WHERE m.user_id = owner.id)),
  (SELECT coalesce(json_agg(g.name), '[]')::text FROM userflow_groupmembership m
    JOIN userflow_group g ON g.id = m.group_id WHERE m.user_id = owner.id)
FROM owner
"""
_OPEN_ADMIN_SESSION = """
WITH owner AS (
  UPDATE userflow_adminuser SET last_login = %(session_auth_time)s
  WHERE id = %(session_user_id)s AND active AND password = %(password)s
    AND (NOT %(password_only)s OR mfa_methods = '[]')
  RETURNING id
), new_session AS (
  INSERT INTO userflow_adminsession (id, user_id, client_id, amr, acr, auth_time, created_at, last_used_at, expires_at,
    ended_at, end_reason, address, user_agent)
  SELECT %(session_id)s::uuid, owner.id, %(session_client_id)s::uuid, %(session_amr)s::jsonb, %(session_acr)s::text,
    %(session_auth_time)s::timestamptz, %(session_created_at)s::timestamptz, %(session_last_used_at)s::timestamptz,
    %(session_expires_at)s::timestamptz, %(session_ended_at)s::timestamptz, %(session_end_reason)s::text,
    %(session_address)s::text, %(session_user_agent)s::text FROM owner
  RETURNING id
), refresh_token AS (
  INSERT INTO userflow_adminrefreshtoken (digest, issued_at, used_at, successor_sealed, session_id)
  SELECT %(refresh_digest)s::bytea, %(refresh_issued_at)s::timestamptz, %(refresh_used_at)s::timestamptz,
    %(refresh_successor_sealed)s::bytea, new_session.id FROM new_session
), cleared_attempts AS (
  DELETE FROM userflow_adminattempts a USING owner
  WHERE a.subject = owner.id::text AND a.factor = %(factor)s AND a.caller = %(caller)s
), audit_event AS (
  INSERT INTO audit_platformevent (action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id,
    details, tenant_id)
  SELECT 'signin.succeeded', 'success', %(actor_kind)s::text, %(actor_id)s::text, 'user', owner.id::text,
    %(origin_address)s::text, %(request_id)s::text, jsonb_build_object('amr', %(session_amr)s::jsonb),
    %(tenant_id)s::uuid FROM owner
)
SELECT
  (SELECT coalesce(json_agg(json_build_array(r.name, r.permissions)), '[]')::text FROM userflow_adminuser_roles b
    JOIN userflow_adminrole r ON r.id = b.adminrole_id WHERE b.adminuser_id = owner.id),
  '[]'
FROM owner
"""

_ROUTE_OR_NULLS = (
    "LEFT JOIN tenants_tenant t ON t.id = {owner} LEFT JOIN tenants_tenantdatabase d ON d.tenant_id = t.id"
    " LEFT JOIN tenants_databaseserver s ON s.id = d.server_id"
)
# Names and permissions of the user's roles as JSON; `{user}` is an expression for the user's id.
ROLES_OF_ADMIN = (
    "(SELECT coalesce(json_agg(json_build_array(r.name, r.permissions)), '[]')::text FROM userflow_adminuser_roles b"
    " JOIN userflow_adminrole r ON r.id = b.adminrole_id WHERE b.adminuser_id = {user})"
)
ROLES_OF_END_USER = (
    "(SELECT coalesce(json_agg(json_build_array(r.name, r.permissions)), '[]')::text FROM userflow_role r"
    " WHERE r.id IN (SELECT b.role_id FROM userflow_rolebinding b WHERE b.user_id = {user}"
    " UNION SELECT gr.role_id FROM userflow_groupmembership m JOIN userflow_group_roles gr ON gr.group_id = m.group_id"
    " WHERE m.user_id = {user}))"
)
# Names of the user's groups as JSON.
GROUPS_OF_END_USER = (
    "(SELECT coalesce(json_agg(g.name), '[]')::text FROM userflow_groupmembership m"
    " JOIN userflow_group g ON g.id = m.group_id WHERE m.user_id = {user})"
)
# Seconds by the database's clock since the session was opened, and since it was last used.
SESSION_AGES = "extract(epoch FROM now() - n.created_at)::float, extract(epoch FROM now() - n.last_used_at)::float"
ADMIN_STATE = (
    f"SELECT {lookup.COLUMNS}, {SESSION_AGES}, extract(epoch FROM n.auth_time)::float, n.amr::text, n.acr,"
    " u.username, u.email, u.tenant_id, u.mfa_methods::text,"
    f" {ROLES_OF_ADMIN.format(user='u.id')} FROM userflow_adminsession n JOIN userflow_adminuser u ON u.id = n.user_id "
    + _ROUTE_OR_NULLS.format(owner="u.tenant_id")
    + " WHERE n.id = %s AND u.id = %s AND u.active AND n.ended_at IS NULL AND n.expires_at > now()"
)
TENANT_AND_CLIENT = (
    f"SELECT {lookup.COLUMNS}, c.active, c.scopes::text, c.name, c.project_id, c.generation,"
    f" {STALE_USE.format(client='c')}, EXISTS (SELECT FROM userflow_revokedtoken WHERE jti = %s)"
    f" FROM tenants_tenant t {lookup.JOINS}"
    " LEFT JOIN userflow_client c ON c.id = %s AND c.tenant_id = t.id WHERE t.id = %s"
)
END_USER_STATE = (
    f"SELECT {SESSION_AGES}, u.email, u.name, u.mfa_methods::text, u.email_verified_at,"
    f" {ROLES_OF_END_USER.format(user='u.id')},"
    f" {GROUPS_OF_END_USER.format(user='u.id')} FROM userflow_endusersession n JOIN userflow_enduser u ON u.id = n.user_id"
    " WHERE n.id = %s AND u.id = %s AND u.active AND n.ended_at IS NULL AND n.expires_at > now()"
)


@dataclass(frozen=True, slots=True)
class Rights:
    """Role names, permissions and group names of a user as stored now, each sorted."""

    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    groups: tuple[str, ...] = ()


def open_session(
    realm: Realm,
    session: UserSession,
    token: UserRefreshToken,
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
    origin = current_origin()
    values: dict[str, SqlValue] = {
        **column_values(session, "session"),
        **column_values(token, "refresh"),
        "tenant_id": tenant_id,
        "password": password,
        "password_only": password_only,
        "factor": cleared.factor if cleared else None,
        "caller": cleared.caller if cleared else None,
        "actor_kind": origin.actor_kind,
        "actor_id": origin.actor_id,
        "origin_address": origin.address,
        "request_id": origin.request_id,
    }
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(_OPEN_END_USER_SESSION if realm is END_USERS else _OPEN_ADMIN_SESSION, values)
        row = cursor.fetchone()
    return rights_in(*row) if row else None


def column_values(row: models.Model, prefix: str) -> Mapping[str, SqlValue]:
    """Return the column values of an unsaved row as Django would insert them, named `prefix_column`."""
    connection = connections["tenant"]
    return {
        f"{prefix}_{field.column}": field.get_db_prep_save(field.pre_save(row, add=True), connection)
        for field in row._meta.concrete_fields
    }


def rights_in(roles: str, groups: str) -> Rights:
    """Return the rights in the JSON of `_OPEN_END_USER_SESSION`."""
    names, permissions = roles_in(roles)
    return Rights(names, tuple(sorted(permissions)), groups_in(groups))


def roles_in(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return names and permissions from the JSON of ROLES_OF_ADMIN or ROLES_OF_END_USER."""
    found = orjson.loads(text)
    return tuple(sorted(name for name, _ in found)), frozenset(p for _, permissions in found for p in permissions)


def groups_in(text: str) -> tuple[str, ...]:
    """Return the names from the JSON of GROUPS_OF_END_USER."""
    return tuple(sorted(orjson.loads(text)))
