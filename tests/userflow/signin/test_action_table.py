"""Every operation that the action table is about, called with less proof than its row needs: rejected, nothing changed."""

import base64
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.entering.context import in_tenant
from tenants.entering.target import TENANT_ALIAS
from tenants.states import Purpose
from tests.openapi.operations import operations_with_token
from tests.userflow.domains.dns_server import serve
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import own_token
from tests.userflow.signin.action_calls import CASES, Case, Scene, Sent
from tests.world import PASSWORD, TestTenant, assert_created, build_tenant, sign_in_admin
from userflow.accounts.models import AdminUser
from userflow.accounts.permissions_catalogue import CLIENT_SCOPES, SELF_PERMISSIONS
from userflow.admins.actions import create_admin_user
from userflow.mail_delivery import background
from userflow.sessions.assurance import Action

DECLARED = {(str(operation), row) for operation in operations_with_token() for row in operation.rows}
# Rows of actions that only the console or an own request offers; each is tested there.
ELSEWHERE = {
    Action.FIRST_FACTOR,
    Action.ADD_FACTOR,
    Action.RENEW_BACKUP_CODES,
    Action.REMOVE_FACTOR,
    Action.REPLACE_FACTOR,
    Action.CHANGE_OWN_EMAIL,
    Action.CHANGE_OWN_PASSWORD,
    Action.CLOSE_ACCOUNT,
    Action.ROTATE_KEYS,
    Action.REVEAL_SECRET,
}
# Written for each rejected request, or by the use of a session.
UNCOUNTED = re.compile(r"audit_|.*session$|userflow_client$|console_|django_session")
# Operations that change something and ask no row, reviewed.
GRANTS_NOTHING = "takes rights away, or gives none to anyone yet"
REVIEWED = {
    "delete /authmgr/groups/{group_id}": GRANTS_NOTHING,
    "delete /authmgr/groups/{group_id}/users": GRANTS_NOTHING,
    "post /authmgr/roles": GRANTS_NOTHING,
    "delete /authmgr/roles/{role_id}": GRANTS_NOTHING,
    "delete /authmgr/roles/{role_id}/bindings": GRANTS_NOTHING,
    "delete /uflow/admin/invitations/{invitation_id}": GRANTS_NOTHING,
    "post /uflow/user/clients/register": "public; gives the default role only",
    "post /uflow/admin/tenants": "a new tenant has no users and no data yet",
    "patch /clientms/tenants/{tenant_id}/clients/{client_id}/activate": "gives back what the client held; rank counts",
    "post /uflow/directory/configs/{config_id}/sync": "does what the configuration says; rank counts",
    "post /uflow/webhooks/endpoints/{endpoint_id}/replay": "goes where the endpoint points anyway",
}
# Whole areas: they change nothing, concern the caller alone, or ask the proofs of `mfa`.
REVIEWED_AREAS = {
    "/authmgr/logout": "ends own sessions",
    "/authmgr/profile": "the caller's own record",
    "/authmgr/step-up": "is the proof itself",
    "/authmgr/token/introspect": "reads",
    "/authmgr/validate": "reads",
    "/exsvc/": "the registry: by permission, and for machines",
    "/uflow/admin/enduser/list": "reads",
    "/uflow/user/enduser/list": "reads",
    "/uflow/user/email/verify": "the mail's token is the proof; an access token only shows who registered",
    "/uflow/webhooks/endpoints/{endpoint_id}/test": "sends an event without data",
    "/uflow/directory/configs/{config_id}/test": "reads",
    "/webauthn/": "factors: the enrollment policy",
}


@pytest.fixture(scope="module")
def scene(django_db_setup: None, django_db_blocker: Any, operator_name: str) -> Iterator[Scene]:
    with serve() as name_server:
        with django_db_blocker.unblock():
            made = Scene(build_tenant("table"), operator_name, name_server)
        yield made


@pytest.fixture(autouse=True)
def _room(settings: Any, scene: Scene) -> None:
    """Each call makes what it is about."""
    settings.DOMAINS_PER_TENANT, settings.DNS_RESOLVERS = 100, [scene.name_server.address]
    settings.WEBHOOK_ENDPOINTS_PER_TENANT = settings.DIRECTORIES_PER_TENANT = 100


@pytest.fixture(scope="module")
def half_proven(scene: Scene, django_db_blocker: Any) -> dict[bool, str]:
    """Tokens of an admin (False) and an operator (True) who have a factor and signed in with the password alone."""
    tokens = {}
    with django_db_blocker.unblock():
        for of_platform in (False, True):
            name = f"half-{secrets.token_hex(5)}"
            tenant_id = None if of_platform else scene.tenant.id
            create_admin_user(tenant_id=tenant_id, username=name, email=f"{name}@example.com", password=PASSWORD)
            tokens[of_platform] = sign_in_admin(name)["access_token"]
            AdminUser.objects.filter(username=name).update(mfa_methods=["totp"])
    return tokens


def digests(alias: str, uncounted: re.Pattern[str] = UNCOUNTED) -> dict[str, str]:
    """A digest of the rows of each table, without those that any request may write."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        names = sorted(name for (name,) in cursor.fetchall() if not uncounted.match(name))
        parts = [
            f"SELECT '{name}', md5(coalesce(string_agg(t::text, '' ORDER BY t::text), '')) FROM \"{name}\" t"
            for name in names
        ]
        cursor.execute(" UNION ALL ".join(parts))
        return dict(cursor.fetchall())


def digests_of(tenant: TestTenant) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the platform's tables and of the tenant's, once no mail waits."""
    assert background.settle(60)
    with in_tenant(tenant.id, Purpose.INSPECT):
        return digests("default"), digests(TENANT_ALIAS)


def state(scene: Scene) -> tuple[dict[str, str], dict[str, str]]:
    return digests_of(scene.tenant)


def must_reject(scene: Scene, case: Case, token: str, sent: Sent | None = None) -> None:
    """The call with this token is rejected as RFC 9470 says, changes nothing and is audited."""
    sent = sent or case.build(scene)
    before = state(scene)
    response = case.call(sent, token=token, tenant=str(scene.tenant.id))
    assert response.status_code == 401, response.content
    assert response.json()["code"] == "insufficient_user_authentication"
    assert 'error="insufficient_user_authentication"' in response.headers["WWW-Authenticate"]
    assert state(scene) == before
    assert is_audited(scene, case, token)


def is_audited(scene: Scene, case: Case, token: str) -> bool:
    """Whether the trail of the caller has a rejected call of the operation; several in a minute are one event."""
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    method, path = case.operation.split(" ")
    details = {"method": method.upper(), "route": path[1:].replace("{", "<str:").replace("}", ">")}
    wanted = {"action": "access.rejected", "actor_id": claims["sub"], "details__contains": details}
    if claims["tenant_id"] is None:
        return PlatformEvent.objects.filter(**wanted).exists()
    with in_tenant(scene.tenant.id, Purpose.INSPECT):
        return TenantEvent.objects.filter(**wanted).exists()


def token_for(scene: Scene, case: Case) -> str:
    return str((scene.operator if case.operators_only else scene.admin).token)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_row_rejects_proof_of_16_minutes_ago(scene: Scene, case: Case) -> None:
    must_reject(scene, case, aged(token_for(scene, case), 16))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_row_rejects_one_factor_of_two(scene: Scene, half_proven: dict[bool, str], case: Case) -> None:
    must_reject(scene, case, half_proven[case.operators_only])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_row_rejects_operators_without_factor(scene: Scene, case: Case, settings: Any) -> None:
    token = str(scene.operator.token)
    sent = case.build(scene)
    settings.OPERATORS_REQUIRE_FACTOR = True
    must_reject(scene, case, token, sent)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_row_accepts_fresh_proof(scene: Scene, case: Case) -> None:
    response = case.call(case.build(scene), token=token_for(scene, case), tenant=str(scene.tenant.id))
    assert response.status_code in (200, 201), response.content


@pytest.mark.parametrize("case", CASES, ids=str)
def test_end_users_reach_no_row_about_others(scene: Scene, case: Case) -> None:
    sent, token = case.build(scene), scene.tenant.sign_in(scene.user())["access_token"]
    before = state(scene)
    response = case.call(sent, token=token, tenant=str(scene.tenant.id))
    assert response.status_code in (403, 404), response.content
    assert state(scene) == before
    assert response.status_code == 404 or is_audited(scene, case, token)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_clients_pass_by_scope_alone(scene: Scene, case: Case) -> None:
    body = {"name": "Machine", "type": "confidential", "scopes": [*CLIENT_SCOPES, *_own_scopes(scene)]}
    machine = assert_created(scene.admin.post(f"/clientms/tenants/{scene.tenant.id}/clients", body))
    response = case.call(case.build(scene), token=own_token(machine), tenant=str(scene.tenant.id))
    expected = (403,) if case.operators_only or case.for_users_only else (200, 201)
    assert response.status_code in expected, response.content


def _own_scopes(scene: Scene) -> list[str]:
    """What the calls grant of the tenant's own permissions."""
    scopes = ["orders:read", "orders:write", *SELF_PERMISSIONS]
    scene.role(*scopes)
    return scopes


def test_each_declared_row_is_called() -> None:
    called = {(case.operation, case.row) for case in CASES}
    assert {(operation, row) for operation, row in DECLARED if row not in ELSEWHERE} == called


# Nothing waits for its entry point.
PENDING: set[Action] = set()


@pytest.mark.parametrize("action", [action for action in Action if action not in PENDING])
def test_each_row_is_asked_by_code(action: Action) -> None:
    sources = [path for folder in ("userflow", "mfa", "console") for path in Path(folder).rglob("*.py")]
    asking = [path for path in sources if f"Action.{action.name}" in path.read_text() and path.name != "assurance.py"]
    assert asking, f"No code asks {action.name}."


def undeclared() -> Iterator[str]:
    declared = {operation for operation, _ in DECLARED}
    for operation in operations_with_token():
        if operation.method != "get" and str(operation) not in declared:
            yield str(operation)


@pytest.mark.parametrize("operation", list(undeclared()))
def test_operation_without_row_is_reviewed(operation: str) -> None:
    path = operation.partition(" ")[2]
    assert operation in REVIEWED or any(path.startswith(area) for area in REVIEWED_AREAS), operation


def test_reviewed_operations_exist() -> None:
    assert set(REVIEWED) <= set(undeclared())
