"""Configure, change and remove directories; their secrets are never returned."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.utils.timezone import now

from tests.userflow.directory.conftest import CONFIGS, Directory
from tests.world import PASSWORD, Api, TestTenant, capture_statements, sign_in_admin
from userflow.directory.models import BY_COMMAND, DirectoryConfig, DirectoryRun

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


def entra(**more: Any) -> dict[str, Any]:
    return {
        "kind": "entra_id",
        "name": f"Cloud {secrets.token_hex(4)}",
        "directory_tenant_id": str(uuid4()),
        "application_id": str(uuid4()),
        "secret": "kept from everybody",
        **more,
    }


def office(**more: Any) -> dict[str, Any]:
    return {
        "kind": "active_directory",
        "name": f"Office {secrets.token_hex(4)}",
        "server": "dc1.corp.example",
        "base_dn": "DC=corp,DC=example",
        "bind_dn": "CN=reader,DC=corp,DC=example",
        "secret": "kept from everybody",
        **more,
    }


def weaker(tenant: TestTenant, role: str) -> Api:
    name = f"weak-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "W", "last_name": "K"}
    assert tenant.api.post("/uflow/admin/users", {**body, "roles": [role]}).status_code == 201
    return Api(token=sign_in_admin(name)["access_token"])


def test_directory_create_read_update_delete(tenant: TestTenant) -> None:
    body = entra()
    made = tenant.api.post(CONFIGS, body)
    assert made.status_code == 201, made.content
    shown = made.json()
    assert (shown["cloud"], shown["enabled"], shown["max_deactivation_percent"]) == ("global", True, 20)
    assert shown["mapping"] == {"email": "mail", "name": "displayName", "metadata": {}, "app_metadata": {}}
    path = f"{CONFIGS}/{shown['id']}"
    assert tenant.api.get(path).json() == shown
    changed = tenant.api.put(
        path, {"name": "Renamed " + body["name"], "enabled": False, "sync_every_minutes": None}
    ).json()
    assert (changed["enabled"], changed["sync_every_minutes"], changed["next_run_at"]) == (False, None, None)
    assert changed["directory_tenant_id"] == body["directory_tenant_id"]
    assert tenant.api.delete(path).json()["id"] == shown["id"]
    assert tenant.api.get(path).status_code == 404


@pytest.mark.needs("python-ldap")
def test_ldap_port_defaults_by_encryption(tenant: TestTenant) -> None:
    made = tenant.api.post(CONFIGS, office()).json()
    assert (made["port"], made["tls"]) == (636, "ldaps")
    changed = tenant.api.put(f"{CONFIGS}/{made['id']}", {"tls": "starttls", "secret": "again"}).json()
    assert (changed["port"], changed["tls"]) == (389, "starttls")


def test_directory_secret_is_never_returned_and_sealed(tenant: TestTenant) -> None:
    made = tenant.api.post(CONFIGS, entra()).json()
    row = DirectoryConfig.objects.get(pk=made["id"])
    responses = [made, tenant.api.get(f"{CONFIGS}/{made['id']}").json(), tenant.api.get(CONFIGS).json()]
    assert "kept from everybody" not in str(responses)
    assert "secret" not in made
    assert b"kept" not in bytes(row.secret)


TARGETS = [
    ("directory_tenant_id", str(uuid4())),
    ("application_id", "another"),
    ("cloud", "china"),
]


@pytest.mark.parametrize(("member", "value"), TARGETS, ids=[member for member, _ in TARGETS])
def test_changed_cloud_target_requires_secret(tenant: TestTenant, member: str, value: str) -> None:
    made = tenant.api.post(CONFIGS, entra()).json()
    path = f"{CONFIGS}/{made['id']}"
    refused = tenant.api.put(path, {member: value})
    assert (refused.status_code, list(refused.json()["details"])) == (400, ["secret"])
    assert tenant.api.get(path).json() == made
    assert tenant.api.put(path, {member: made[member]}).status_code == 200
    assert tenant.api.put(path, {member: value, "secret": "for the new one"}).json()[member] == value


MOVES = [
    ("server", "dc2.corp.example"),
    ("port", 1636),
    ("tls", "starttls"),
    ("base_dn", "DC=other"),
    ("bind_dn", "CN=other"),
]


@pytest.mark.needs("python-ldap")
@pytest.mark.parametrize(("member", "value"), MOVES, ids=[member for member, _ in MOVES])
def test_changed_server_requires_secret(tenant: TestTenant, member: str, value: Any) -> None:
    made = tenant.api.post(CONFIGS, office()).json()
    refused = tenant.api.put(f"{CONFIGS}/{made['id']}", {member: value})
    assert (refused.status_code, list(refused.json()["details"])) == (400, ["secret"])
    assert tenant.api.get(f"{CONFIGS}/{made['id']}").json()[member] == made[member]


def test_target_changed_in_table_gets_no_secret(tenant: TestTenant, configured: Callable[..., Directory]) -> None:
    directory = configured(tenant, **entra())
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE userflow_directoryconfig SET target = jsonb_set(target, '{cloud}', '\"china\"') WHERE id = %s",
            [directory.made["id"]],
        )
    refused = tenant.api.post(f"{directory.path}/test")
    assert (refused.status_code, "must be entered again" in refused.json()["message"]) == (503, True)
    assert tenant.api.post(f"{directory.path}/sync", {}).status_code == 503


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "ldap"}, "kind"),
    ({"secret": ""}, "secret"),
    ({"secret": None}, "secret"),
    ({"application_id": None}, "application_id"),
    ({"directory_tenant_id": "../other"}, "directory_tenant_id"),
    ({"cloud": "elsewhere"}, "cloud"),
    ({"server": "dc1.corp.example"}, "server"),
    ({"mapping": {"email": "unicodePwd"}}, "mapping.email"),
    ({"mapping": {"name": "display name"}}, "mapping.name"),
    ({"mapping": {"metadata": {"pw": "passwordProfile"}}}, "mapping.metadata"),
    ({"mapping": {"metadata": {"bad key": "department"}}}, "mapping.metadata"),
    ({"mapping": {"metadata": {f"k{n}": "department" for n in range(21)}}}, "mapping.metadata"),
    ({"mapping": {"app_metadata": {"pw": "passwordProfile"}}}, "mapping.app_metadata"),
    ({"groups": {"a": "no such group here"}}, "groups"),
    ({"groups": {"a": 1}}, "groups"),
    ({"groups": ["a"]}, "groups"),
    ({"max_deactivation_percent": 101}, "max_deactivation_percent"),
    ({"sync_every_minutes": 1}, "sync_every_minutes"),
    ({"user_filter": "(a=b)(c=d)"}, "user_filter"),
    ({"ca_certificate": "no pem"}, "ca_certificate"),
    ({"port": 0}, "port"),
]


@pytest.mark.parametrize(("members", "named"), WRONG, ids=[f"{named}-{n}" for n, (_, named) in enumerate(WRONG)])
def test_create_directory_rejects_invalid_fields(tenant: TestTenant, members: dict[str, Any], named: str) -> None:
    refused = tenant.api.post(CONFIGS, entra(**members))
    assert refused.status_code == 400, refused.content
    assert list(refused.json()["details"]) == [named]


@pytest.mark.needs("python-ldap")
@pytest.mark.parametrize("member", ["server", "base_dn", "bind_dn"])
def test_create_active_directory_requires_target(tenant: TestTenant, member: str) -> None:
    body = office()
    del body[member]
    refused = tenant.api.post(CONFIGS, body)
    assert (refused.status_code, list(refused.json()["details"])) == (400, [member])


def test_directory_name_is_unique_in_any_case_and_race(tenant: TestTenant) -> None:
    name = f"Race {secrets.token_hex(4)}"

    def attempt(number: int) -> int:
        try:
            body = entra(name=name.lower() if number % 2 else name)
            return int(Api(token=tenant.api.token).post(CONFIGS, body).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(attempt, range(8)))
    assert codes == [201] + [409] * 7


def test_directory_limit_holds_in_a_race(new_tenant: Callable[[], TestTenant], settings: Any) -> None:
    settings.DIRECTORIES_PER_TENANT = 3
    tenant = new_tenant()

    def attempt(_: int) -> int:
        try:
            return int(Api(token=tenant.api.token).post(CONFIGS, entra()).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [201] * 3 + [409] * 5
    made = tenant.api.get(CONFIGS).json()["directories"]
    assert tenant.api.delete(f"{CONFIGS}/{made[0]['id']}").status_code == 200
    assert tenant.api.post(CONFIGS, entra()).status_code == 201


def test_directory_endpoints_require_permissions(tenant: TestTenant) -> None:
    path = f"{CONFIGS}/{tenant.api.post(CONFIGS, entra()).json()['id']}"
    auditor, service_manager = weaker(tenant, "auditor"), weaker(tenant, "service-manager")
    reads = [("GET", CONFIGS), ("GET", path), ("GET", f"{path}/runs")]
    writes = [("POST", CONFIGS), ("PUT", path), ("DELETE", path), ("POST", f"{path}/test"), ("POST", f"{path}/sync")]
    for method, where in reads:
        assert auditor.call(method, where).status_code == 200
    for method, where in [*reads, *writes]:
        assert service_manager.call(method, where).status_code == 403
        assert tenant.as_user(tenant.register()).call(method, where).status_code == 403
        assert Api().call(method, where).status_code == 401
    for method, where in writes:
        assert auditor.call(method, where).status_code == 403


def test_directory_of_other_tenant_is_404(tenant: TestTenant, other_tenant: TestTenant) -> None:
    theirs = other_tenant.api.post(CONFIGS, entra()).json()
    path, nowhere = f"{CONFIGS}/{theirs['id']}", f"{CONFIGS}/{UNKNOWN_ID}"
    for method, tail in (
        ("GET", ""),
        ("PUT", ""),
        ("DELETE", ""),
        ("POST", "/test"),
        ("POST", "/sync"),
        ("GET", "/runs"),
    ):
        body = {} if method in ("PUT", "POST") else None
        mine, unknown = tenant.api.call(method, path + tail, body), tenant.api.call(method, nowhere + tail, body)
        assert (mine.status_code, mine.json()) == (404, unknown.json())
    assert theirs["id"] not in {d["id"] for d in tenant.api.get(CONFIGS, {"limit": 100}).json()["directories"]}
    assert tenant.api.post(CONFIGS, entra(tenant_id=str(other_tenant.id))).status_code == 403
    assert other_tenant.api.get(path).json() == theirs


def test_create_directory_rejects_foreign_client_and_groups(
    new_tenant: Callable[[], TestTenant], other_tenant: TestTenant
) -> None:
    tenant = new_tenant()
    assert tenant.api.post(CONFIGS, entra(client_id=str(other_tenant.client_id))).status_code == 404
    role = f"strong-{secrets.token_hex(4)}"
    tenant.api.post("/authmgr/roles", {"name": role, "permissions": ["services:credentials"]})
    tenant.api.post("/authmgr/groups", {"name": role, "roles": [role]})
    assert tenant.api.post(CONFIGS, entra(groups={"g": role})).status_code == 201
    client = {"name": role, "type": "confidential", "scopes": ["directory:write"]}
    made = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", client).json()
    proof = {name: made[name] for name in ("client_id", "client_secret")}
    token = (
        Api().post("/authmgr/token", {"grant_type": "client_credentials", "scope": "directory:write", **proof}).json()
    )
    weak = Api(token=token["access_token"])
    assert weak.post(CONFIGS, entra(groups={"g": role})).status_code == 403
    assert weak.post(CONFIGS, entra()).status_code == 201


def test_operator_names_tenant_of_directory(tenant: TestTenant, operator: Api) -> None:
    assert operator.post(CONFIGS, entra()).status_code == 400
    made = operator.post(CONFIGS, entra(tenant_id=str(tenant.id))).json()
    assert operator.get(f"{CONFIGS}/{made['id']}", {"tenant_id": str(tenant.id)}).json()["id"] == made["id"]
    assert tenant.api.get(f"{CONFIGS}/{made['id']}").status_code == 200


@pytest.mark.parametrize(("how_many", "asked"), [(1, "list"), (6, "list"), (1, "one"), (1, "runs")])
def test_directory_list_query_count_is_constant(
    new_tenant: Callable[[], TestTenant], how_many: int, asked: str
) -> None:
    tenant = new_tenant()
    made = [tenant.api.post(CONFIGS, entra()).json()["id"] for _ in range(how_many)]
    path = {"list": CONFIGS, "one": f"{CONFIGS}/{made[0]}", "runs": f"{CONFIGS}/{made[0]}/runs"}[asked]
    tenant.api.get(path)
    with capture_statements() as seen:
        assert tenant.api.get(path).status_code == 200
    # The caller's state, then: page and total; one row; existence, page and total.
    assert seen.counts == ({"list": 3, "one": 2, "runs": 4}[asked], 0), seen.default


def test_directory_changes_are_audited_without_secrets(tenant: TestTenant, operator: Api) -> None:
    made = tenant.api.post(CONFIGS, entra()).json()
    tenant.api.put(f"{CONFIGS}/{made['id']}", {"secret": "a new one", "enabled": False})
    tenant.api.delete(f"{CONFIGS}/{made['id']}")
    events = operator.get("/uflow/admin/audit", {"target": made["id"]}).json()["events"]
    assert [event["action"] for event in events] == ["directory.deleted", "directory.updated", "directory.created"]
    assert events[1]["details"] == {"changed": ["enabled", "secret"]}
    assert "a new one" not in str(events)


def test_deleting_tenant_deletes_directories(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    tenant = new_tenant()
    made = tenant.api.post(CONFIGS, entra()).json()
    slug = tenant.slug
    assert operator.delete(f"/uflow/admin/tenants/{tenant.id}", {"confirm": slug}).status_code == 200
    assert not DirectoryConfig.objects.filter(pk=made["id"]).exists()


def test_old_directory_runs_are_purged(tenant: TestTenant) -> None:
    config = DirectoryConfig.objects.get(pk=tenant.api.post(CONFIGS, entra()).json()["id"])
    old, recent = (
        DirectoryRun.objects.create(config=config, tenant_id=tenant.id, trigger=BY_COMMAND) for _ in range(2)
    )
    DirectoryRun.objects.filter(pk=old.pk).update(started_at=now() - timedelta(days=91))
    with pytest.raises(SystemExit):
        call_command("purge_expired", "platform", stdout=StringIO())
    assert list(DirectoryRun.objects.filter(config=config)) == [recent]
