"""The cost of pages inside a tenant: time, and statements, which are the same for few users and for thousands."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from tenants.entering.context import in_tenant, tenant_atomic
from tests.console.people.browsing import CHOOSER, GROUPS, PEOPLE, ROLES, SESSIONS, USERS, operator_in
from tests.console.staff import Staff
from tests.world import TestTenant, capture_statements

MANY = 3_000
CROWD = """
    INSERT INTO userflow_enduser (id, email, email_key, name, active, provider, client_id, password, metadata,
        mfa_methods, created_at, updated_at)
    SELECT gen_random_uuid(), 'p' || n || '@crowd.example', 'p' || n || '@crowd.example',
        'Person ' || md5(n::text), n %% 10 > 0, CASE n %% 4 WHEN 0 THEN 'entra' ELSE 'local' END, %s, '', '{}',
        CASE n %% 5 WHEN 0 THEN '["totp"]'::jsonb ELSE '[]'::jsonb END, now() - n * interval '1 minute', now()
    FROM generate_series(1, %s) n
"""
BONDS = """
    INSERT INTO userflow_rolebinding (user_id, role_id, created_at)
    SELECT u.id, r.id, now() FROM userflow_enduser u, userflow_role r WHERE r.name = 'user'
    ON CONFLICT DO NOTHING
"""
MEMBERS = """
    INSERT INTO userflow_groupmembership (user_id, group_id, created_at)
    SELECT id, %s, now() FROM userflow_enduser ON CONFLICT DO NOTHING
"""
SIGNED_IN = """
    INSERT INTO userflow_endusersession (id, user_id, client_id, amr, acr, auth_time, created_at, last_used_at, expires_at,
        address, user_agent, end_reason)
    SELECT gen_random_uuid(), id, client_id, '["pwd"]', 'aal1', now(), now(), now(),
        now() + random() * interval '30 days', '10.0.0.1', 'Browser', ''
    FROM userflow_enduser
"""
EVENTS = """
    INSERT INTO audit_tenantevent (action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id,
        details)
    SELECT 'signin.succeeded', 'success', 'end_user', id::text, 'user', id::text, '10.0.0.1', '', '{}'
    FROM userflow_enduser
"""


def crowded(tenant: TestTenant, number: int) -> dict[str, Any]:
    """Insert users with one role, one group and one session each; return the paths to request."""
    group = tenant.api.post("/authmgr/groups", {"name": "Everybody", "roles": ["user"]}).json()
    person = tenant.register("in.the.crowd@example.com", name="Some Person")
    with in_tenant(tenant.id), tenant_atomic(), connections["tenant"].cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute(CROWD, [tenant.client_id, number])
        for statement, values in ((BONDS, []), (MEMBERS, [group["id"]]), (SIGNED_IN, []), (EVENTS, [])):
            cursor.execute(statement, values)
        for table in ("userflow_enduser", "userflow_endusersession", "userflow_groupmembership", "audit_tenantevent"):
            cursor.execute(f"ANALYZE {table}")
        cursor.execute("SELECT id FROM userflow_role WHERE name = 'user'")
        (role,) = cursor.fetchone()
    return {
        "users": USERS,
        "users, page 2": f"{USERS}?p=2",
        "users, counts of filters": f"{USERS}?_facets=True",
        "users, address": f"{USERS}?q=p1%40crowd",
        "users, part of a name": f"{USERS}?q=abc1",
        "users, no match": f"{USERS}?q=no-such-user",
        "users, filtered": f"{USERS}?active=no&provider=entra&factor=totp",
        "users of a client": f"{USERS}?client={tenant.client_id}",
        "person": f"{PEOPLE}{person.id}/",
        "groups": GROUPS,
        "group": f"/admin/inside/groups/{group['id']}/",
        "group, member": f"/admin/inside/groups/{group['id']}/?q=p17",
        "roles": ROLES,
        "role": f"/admin/inside/roles/{role}/",
        "sessions": SESSIONS,
        "sessions, of a user": f"{SESSIONS}?q=p1%40crowd",
        "invitations": "/admin/inside/invitations/",
        # With names of one kind: there is a statement for each kind on the page.
        "trail": "/admin/inside/trail/?action=signin.succeeded",
        "trail, of a person": f"/admin/inside/trail/?person={person.id}",
        "chooser": f"{CHOOSER}?q=own",
    }


def cost(staff: Staff, path: str) -> tuple[int, int]:
    """Return the statements in the global and in the tenant's database."""
    staff.just_seen()
    with capture_statements() as seen:
        assert staff.browser.get(path).status_code == 200
    return seen.counts


# In the global and in the tenant's own database. Three of the global ones are the frame's: session, staff, tenant.
PINNED = {
    "users": (5, 4),
    "users, page 2": (5, 4),
    "users, counts of filters": (5, 4),
    "users, address": (5, 5),
    "users, part of a name": (5, 6),
    "users, no match": (5, 4),
    "users, filtered": (5, 4),
    "users of a client": (5, 4),
    "person": (5, 20),
    "groups": (4, 4),
    "group": (4, 4),
    "group, member": (4, 6),
    "roles": (4, 3),
    "role": (4, 4),
    "sessions": (4, 3),
    "sessions, of a user": (4, 4),
    "invitations": (5, 2),
    "trail": (4, 3),
    "trail, of a person": (5, 4),
    "chooser": (5, 0),
}


@pytest.mark.parametrize("number", [1, MANY])
def test_page_statements_do_not_grow_with_rows(new_tenant: Callable[[], TestTenant], number: int) -> None:
    tenant = new_tenant()
    staff = operator_in(tenant)
    for name, path in crowded(tenant, number).items():
        spent = cost(staff, path)
        # A search without matches reads no rows.
        assert spent == PINNED[name] or (number == 1 and spent < PINNED[name]), name
