"""The statements that every authorized request runs: state of the session, its user and client, roles and groups."""

from uuid import UUID

import orjson
from django.db import connections

from tenants import lookup
from userflow.accounts.realms import END_USERS, Realm
from userflow.sessions.client_usage import STALE_USE

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
_ROLES = {
    False: f"SELECT {ROLES_OF_ADMIN.format(user='%(user)s')}, '[]'",
    True: f"SELECT {ROLES_OF_END_USER.format(user='%(user)s')}, {GROUPS_OF_END_USER.format(user='%(user)s')}",
}


def roles_and_groups(realm: Realm, user_id: UUID) -> tuple[tuple[str, ...], frozenset[str], tuple[str, ...]]:
    """Return the user's role names, permissions and group names as stored now."""
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(_ROLES[realm is END_USERS], {"user": user_id})
        roles, groups = cursor.fetchone()
    return *roles_in(roles), groups_in(groups)


def roles_in(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return names and permissions from the JSON of ROLES_OF_ADMIN or ROLES_OF_END_USER."""
    found = orjson.loads(text)
    return tuple(sorted(name for name, _ in found)), frozenset(p for _, permissions in found for p in permissions)


def groups_in(text: str) -> tuple[str, ...]:
    """Return the names from the JSON of GROUPS_OF_END_USER."""
    return tuple(sorted(orjson.loads(text)))
