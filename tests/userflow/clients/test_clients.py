"""Clients of a tenant: create, list, change, rotate secrets, delete."""

import re
from typing import Any
from uuid import uuid4

import pytest

from identity_platform.audit.models import PlatformEvent
from tests.copies import change_client
from tests.userflow.sessions.clients import basic, form, make_client, own_token
from tests.world import Api, TestTenant, capture_statements, sign_in_admin
from userflow.accounts.models import AdminRole, AdminUser, Client

VALIDATE = "/authmgr/validate"
MEMBERS = {
    "id",
    "client_id",
    "tenant_id",
    "name",
    "type",
    "active",
    "status",
    "tags",
    "scopes",
    "project_id",
    "owner_id",
    "self_registration",
    "redirect_uris",
    "post_logout_redirect_uris",
    "grant_types",
    "token_endpoint_auth_method",
    "jwks",
    "jwks_uri",
    "id_token_signed_response_alg",
    "access_token_signed_response_alg",
    "audiences",
    "allowed_origins",
    "require_par",
    "refresh_token_rotation",
    "security_profile",
    "require_pkce",
    "require_nonce",
    "dpop_bound_access_tokens",
    "tls_client_certificate_bound_access_tokens",
    "tls_client_auth_subject_dn",
    "tls_client_auth_san_dns",
    "tls_client_auth_san_uri",
    "tls_client_auth_san_ip",
    "tls_client_auth_san_email",
    "tls_client_auth_authorities",
    "first_party",
    "direct_sign_in",
    "backchannel_logout_uri",
    "access_token_seconds",
    "default_max_age",
    "logo_uri",
    "client_uri",
    "policy_uri",
    "tos_uri",
    "is_default",
    "created_at",
    "updated_at",
    "last_used_at",
}


def path(tenant: TestTenant, *parts: object) -> str:
    return "/".join(["/clientms/tenants", str(tenant.id), "clients", *map(str, parts)])


def create(tenant: TestTenant, **members: Any) -> Any:
    return tenant.api.post(path(tenant), {"name": "Shop", **members})


# --- create and read -------------------------------------------------------------------------------------------------


def test_client_is_public_by_default_without_secret(tenant: TestTenant) -> None:
    response = create(tenant)
    assert response.status_code == 201
    made = response.json()
    assert set(made) == MEMBERS
    assert (made["type"], made["active"], made["status"]) == ("public", True, "Active")
    assert (made["client_id"], made["owner_id"]) == (made["id"], str(tenant.admin.id))
    assert (made["tags"], made["scopes"], made["redirect_uris"], made["self_registration"]) == ([], [], [], False)
    assert tenant.api.get(path(tenant, made["id"])).json() == made


def test_client_secret_is_shown_once_and_stored_hashed(tenant: TestTenant) -> None:
    response = create(tenant, type="confidential", tags=["web", "eu", "web"], project_id="p1", owner_id="team-7")
    made = response.json()
    assert set(made) == MEMBERS | {"client_secret"}
    assert re.fullmatch(r"ics_[A-Za-z0-9_-]{43}", made["client_secret"])
    assert response.headers["Cache-Control"] == "no-store"
    assert (made["tags"], made["project_id"], made["owner_id"]) == (["web", "eu"], "p1", "team-7")
    assert "client_secret" not in tenant.api.get(path(tenant, made["id"])).json()
    assert len(bytes(Client.objects.get(pk=made["id"]).secret_digest or b"")) == 32


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("name", ""),
        ("name", "   "),
        ("name", 7),
        ("name", "n" * 256),
        ("type", "secret"),
        ("tags", "web"),
        ("tags", [7]),
        ("tags", [""]),
        ("tags", ["t" * 65]),
        ("tags", {"0": "a"}),
        ("scopes", "services:read"),
        ("scopes", [None]),
        ("redirect_uris", "https://a.example"),
        ("self_registration", "yes"),
        ("active", 1),
        ("project_id", 7),
    ],
)
def test_invalid_field_is_named(tenant: TestTenant, member: str, value: Any) -> None:
    response = create(tenant, **{member: value})
    assert response.status_code == 400
    assert next(iter(response.json()["details"])).startswith(member)


def test_create_requires_name(tenant: TestTenant) -> None:
    assert list(tenant.api.post(path(tenant), {}).json()["details"]) == ["name"]


@pytest.mark.parametrize(
    "uri",
    [
        "https://app.example/callback",
        "https://app.example:8443/cb?x=1",
        "http://localhost",
        "http://localhost:3000/cb",
        "http://127.0.0.1:3000/cb",
        "http://[::1]:3000/cb",
        "com.example.app:/oauth",
        "com.example.app://callback",
    ],
)
def test_redirect_uris_are_stored_unchanged(tenant: TestTenant, uri: str) -> None:
    assert create(tenant, redirect_uris=[uri]).json()["redirect_uris"] == [uri]


@pytest.mark.parametrize(
    "uri",
    [
        "http://app.example/cb",
        "http://localhost.evil.example/cb",
        "https://",
        "https:///cb",
        "https://user:pass@app.example/cb",
        "https://app.example/cb#fragment",
        "https://*.example/cb",
        "https://app.example:99999/cb",
        "https://app.example/ä",
        "https://app.example/a b",
        "https://app.example\\@evil.example/",
        "//app.example/cb",
        "/callback",
        "callback",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "vbscript:x",
        "JAVASCRIPT:alert(1)",
    ],
)
def test_unsafe_redirect_uris_are_rejected(tenant: TestTenant, uri: str) -> None:
    response = create(tenant, redirect_uris=["https://app.example/cb", uri])
    assert (response.status_code, list(response.json()["details"])) == (400, ["redirect_uris[1]"])


# --- scopes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["services:fly", "tenants:read", "tenants:write", "nothing:here", "x", "services:*"])
def test_unknown_scope_is_rejected(tenant: TestTenant, scope: str) -> None:
    response = create(tenant, type="confidential", scopes=[scope])
    assert (response.status_code, list(response.json()["details"])) == (400, ["scopes"])


def test_scope_of_a_tenant_role_can_be_granted(tenant: TestTenant, other_tenant: TestTenant) -> None:
    name = uuid4().hex[:8]
    own = f"invoices-{name}:read"
    role = tenant.api.post("/authmgr/roles", {"name": f"clerk-{name}", "permissions": [own]})
    assert role.status_code == 201, role.content
    assert create(tenant, type="confidential", scopes=[own]).json()["scopes"] == [own]
    assert create(other_tenant, type="confidential", scopes=[own]).status_code == 400


def test_grant_beyond_own_permissions_is_rejected(new_tenant: Any) -> None:
    own = new_tenant()
    strong = make_client(own, scopes=["admins:write"])
    clerk = AdminRole.objects.create(
        name=f"clerk-{uuid4().hex[:6]}", permissions=["clients:read", "clients:write", "services:read"]
    )
    AdminUser.objects.get(pk=own.admin.id).roles.set([clerk])
    assert create(own, type="confidential", scopes=["services:read"]).status_code == 201
    assert create(own, type="confidential", scopes=["services:read", "services:credentials"]).status_code == 403
    weak = create(own, type="confidential").json()
    assert own.api.put(path(own, weak["id"]), {"scopes": ["endusers:write"]}).status_code == 403
    for response in (
        own.api.put(path(own, strong["id"]), {"redirect_uris": ["https://evil.example/"]}),
        own.api.post(path(own, strong["id"], "secret")),
        own.api.patch(path(own, strong["id"], "deactivate")),
        own.api.patch(path(own, strong["id"], "activate")),
        own.api.delete(path(own, strong["id"])),
    ):
        assert response.status_code == 403
    assert Client.objects.get(pk=strong["id"]).redirect_uris == []


def test_client_grants_only_scopes_of_its_token(tenant: TestTenant) -> None:
    client = make_client(tenant, scopes=["clients:read", "clients:write", "services:read"])
    token = Api().post(
        "/authmgr/token", **form(grant_type="client_credentials", scope="clients:write"), headers=basic(client)
    )
    api = Api(token=token.json()["access_token"])
    body = {"name": "child", "type": "confidential"}
    assert api.post(path(tenant), {**body, "scopes": ["clients:write"]}).status_code == 201
    assert api.post(path(tenant), {**body, "scopes": ["services:read"]}).status_code == 403
    assert api.get(path(tenant)).status_code == 403


def test_removed_scope_applies_at_next_request(tenant: TestTenant) -> None:
    client = make_client(tenant, scopes=["clients:read"])
    api = Api(token=own_token(client))
    assert api.get(path(tenant)).status_code == 200
    tenant.api.patch(path(tenant, client["id"]), {"scopes": []})
    assert api.get(path(tenant)).status_code == 403


# --- list ------------------------------------------------------------------------------------------------------------


def test_list_pages_newest_first_and_filters(new_tenant: Any) -> None:
    own = new_tenant()
    ids = [create(own, name=f"Shop {n}%", tags=["all", f"n{n}"]).json()["id"] for n in range(3)]
    own.api.patch(path(own, ids[0], "deactivate"))

    def listed(**query: Any) -> tuple[list[str], dict[str, int]]:
        response = own.api.get(path(own), query)
        assert response.status_code == 200, response.content
        return [client["id"] for client in response.json()["clients"]], response.json()["pagination"]

    everything, pagination = listed()
    assert everything == [*reversed(ids), str(own.client_id)]
    assert pagination == {"page": 1, "limit": 20, "total": 4, "total_pages": 1}
    assert listed(limit=1, page=2) == ([ids[1]], {"page": 2, "limit": 1, "total": 4, "total_pages": 4})
    assert listed(page=9)[0] == []
    assert listed(active="false")[0] == [ids[0]]
    assert listed(name="sHOP")[0] == list(reversed(ids))
    assert listed(name="1%")[0] == [ids[1]]
    assert listed(name="%")[0] == list(reversed(ids))
    assert listed(tags="all,n2")[0] == [ids[2]]
    assert listed(tags="n1,n2")[0] == []
    assert listed(limit=1000)[1]["limit"] == 100


@pytest.mark.parametrize("query", [{"page": "0"}, {"limit": "0"}, {"limit": "x"}, {"active": "yes"}, {"page": "-1"}])
def test_invalid_query_parameter_is_named(tenant: TestTenant, query: dict[str, str]) -> None:
    response = tenant.api.get(path(tenant), query)
    assert (response.status_code, list(response.json()["details"])) == (400, list(query))


def test_list_needs_two_statements(tenant: TestTenant) -> None:
    with capture_statements() as seen:
        tenant.api.get(path(tenant))
    assert seen.counts == (3, 0)
    with capture_statements() as seen:
        tenant.api.get(path(tenant, tenant.client_id))
    assert seen.counts == (2, 0)


# --- change ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["put", "patch"])
def test_update_changes_given_fields(tenant: TestTenant, method: str) -> None:
    made = create(tenant, tags=["a"], project_id="p").json()
    changes = {"name": "New", "scopes": ["services:read"], "self_registration": True, "project_id": None}
    changed = tenant.api.call(method, path(tenant, made["id"]), {**changes, "id": str(uuid4()), "is_default": True})
    assert changed.status_code == 200
    assert changed.json() == {**made, **changes, "updated_at": changed.json()["updated_at"]}
    assert changed.json()["updated_at"] > made["updated_at"]
    assert tenant.api.get(path(tenant, made["id"])).json() == changed.json()


def test_update_rejects_another_type(tenant: TestTenant) -> None:
    made = create(tenant).json()
    assert tenant.api.put(path(tenant, made["id"]), {"type": "confidential"}).status_code == 400
    assert tenant.api.put(path(tenant, made["id"]), {"type": "public", "active": False}).json()["status"] == "Inactive"


def test_deactivation_ends_sign_in_and_tokens(tenant: TestTenant) -> None:
    client, person = make_client(tenant, first_party=True), tenant.register()
    login = {"client_id": client["id"], "email": person.email, "password": person.password}
    login["client_secret"] = client["client_secret"]
    user = Api(token=Api().post("/uflow/auth/enduser/login", login).json()["access_token"])
    elsewhere, own = tenant.as_user(person), Api(token=own_token(client))
    assert [api.get(VALIDATE).status_code for api in (user, own)] == [200, 200]
    off = tenant.api.patch(path(tenant, client["id"], "deactivate"))
    assert (off.status_code, off.json()["active"], off.json()["status"]) == (200, False, "Inactive")
    assert [api.get(VALIDATE).status_code for api in (user, own)] == [401, 401]
    rejected = Api().post("/uflow/auth/enduser/login", login)
    unknown = Api().post("/uflow/auth/enduser/login", {**login, "client_id": str(uuid4())})
    assert (rejected.status_code, rejected.content) == (401, unknown.content)
    register = {"tenant_id": str(tenant.id), "client_id": client["id"], "email": "a@example.com"}
    assert Api().post("/uflow/user/clients/register", {**register, "password": "correct horse 9 b"}).status_code == 404
    on = tenant.api.patch(path(tenant, client["id"], "activate"))
    assert (on.status_code, on.json()["status"]) == (200, "Active")
    assert [api.get(VALIDATE).status_code for api in (user, own)] == [401, 401]
    assert Api().post("/uflow/auth/enduser/login", login).status_code == 200
    assert Api(token=own_token(client)).get(VALIDATE).status_code == 200
    assert elsewhere.get(VALIDATE).status_code == 200


def test_deactivate_client_of_suspended_tenant(new_tenant: Any, operator: Api) -> None:
    own = new_tenant()
    user = own.as_user(own.register())
    operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": "suspended"})
    assert operator.patch(path(own, own.client_id, "deactivate")).status_code == 200
    assert operator.patch(path(own, own.client_id, "activate")).status_code == 403
    operator.patch(f"/uflow/admin/tenants/{own.id}", {"status": "active"})
    assert user.get(VALIDATE).status_code == 401
    assert operator.patch(path(own, own.client_id, "activate")).status_code == 200
    assert user.get(VALIDATE).status_code == 401


def test_delete_ends_tokens_and_keeps_users(tenant: TestTenant) -> None:
    client, person = make_client(tenant, self_registration=True), None
    person = tenant.register(client_id=client["id"])
    own = Api(token=own_token(client))
    response = tenant.api.delete(path(tenant, client["id"]))
    assert (response.status_code, response.json()["id"]) == (200, client["id"])
    assert own.get(VALIDATE).status_code == 401
    assert tenant.api.get(path(tenant, client["id"])).status_code == 404
    assert tenant.api.get(f"/uflow/user/enduser/{tenant.id}/{person.id}").status_code == 200


def test_scope_of_a_role_requires_roles_write(new_tenant: Any) -> None:
    own, scope = new_tenant(), "tea:pour"
    assert own.api.post("/authmgr/roles", {"name": "pourer", "permissions": [scope]}).status_code == 201
    for held, expected in ((["clients:write"], 403), (["clients:write", "roles:write"], 201)):
        clerk = AdminRole.objects.create(name=f"clerk-{uuid4().hex[:6]}", permissions=held)
        AdminUser.objects.get(pk=own.admin.id).roles.set([clerk])
        assert create(own, type="confidential", scopes=[scope]).status_code == expected


def test_deactivation_ends_sessions_of_that_client_only(tenant: TestTenant) -> None:
    person, name = tenant.register(), f"second-{tenant.admin.username}"
    body = {"name": name, "type": "public", "first_party": True}
    second = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body).json()["id"]
    apis = []
    for client in (str(tenant.client_id), second):
        login = {"client_id": client, "email": person.email, "password": person.password}
        apis.append(Api(token=Api().post("/uflow/auth/enduser/login", login).json()["access_token"]))
    for verb in ("deactivate", "activate"):
        assert tenant.api.patch(f"/clientms/tenants/{tenant.id}/clients/{second}/{verb}").status_code == 200
    # Activating the client does not restore its sessions.
    assert [api.get("/authmgr/validate").status_code for api in apis] == [200, 401]


def test_delete_rejects_default_client(tenant: TestTenant) -> None:
    assert tenant.api.delete(path(tenant, tenant.client_id)).status_code == 403
    assert tenant.api.get(path(tenant, tenant.client_id)).json()["is_default"] is True


# --- secrets ---------------------------------------------------------------------------------------------------------


def signs_in(client: dict[str, Any], secret: str) -> bool:
    response = Api().post("/authmgr/token", **form(grant_type="client_credentials"), headers=basic(client, secret))
    return bool(response.status_code == 200)


def test_previous_secret_works_until_the_overlap_ends(tenant: TestTenant) -> None:
    client = make_client(tenant)
    old = client["client_secret"]
    rotated = tenant.api.post(path(tenant, client["id"], "secret"))
    assert rotated.status_code == 200
    assert rotated.headers["Cache-Control"] == "no-store"
    new = rotated.json()["client_secret"]
    assert rotated.json()["previous_secret_expires_at"]
    assert (signs_in(client, old), signs_in(client, new)) == (True, True)
    from datetime import timedelta

    from django.utils.timezone import now

    until = Client.objects.get(pk=client["id"]).previous_secret_until
    assert until is not None
    assert timedelta(hours=23) < until - now() <= timedelta(hours=24)
    change_client(client["id"], previous_secret_until=now())
    assert (signs_in(client, old), signs_in(client, new)) == (False, True)


def test_rotation_keeps_at_most_one_previous_secret(tenant: TestTenant) -> None:
    client = make_client(tenant)
    first = client["client_secret"]
    second = tenant.api.post(path(tenant, client["id"], "secret"), {"overlap_seconds": 60}).json()["client_secret"]
    third = tenant.api.post(path(tenant, client["id"], "secret")).json()["client_secret"]
    assert [signs_in(client, secret) for secret in (first, second, third)] == [False, True, True]
    last = tenant.api.post(path(tenant, client["id"], "secret"), {"overlap_seconds": 0}).json()
    assert last["previous_secret_expires_at"] is None
    assert [signs_in(client, secret) for secret in (second, third, last["client_secret"])] == [False, False, True]


@pytest.mark.parametrize("overlap", [-1, "60", True, 10**9])
def test_rotate_rejects_invalid_overlap(tenant: TestTenant, overlap: Any) -> None:
    response = tenant.api.post(path(tenant, make_client(tenant)["id"], "secret"), {"overlap_seconds": overlap})
    assert (response.status_code, list(response.json()["details"])) == (400, ["overlap_seconds"])


def test_rotate_rejects_public_client(tenant: TestTenant) -> None:
    assert tenant.api.post(path(tenant, create(tenant).json()["id"], "secret")).status_code == 400


# --- permissions -----------------------------------------------------------------------------------------------------


def calls(api: Api, tenant: Any, client: Any) -> list[Any]:
    base = f"/clientms/tenants/{tenant}/clients"
    return [
        api.get(base),
        api.post(base, {"name": "x"}),
        api.get(f"{base}/{client}"),
        api.put(f"{base}/{client}", {"name": "x"}),
        api.patch(f"{base}/{client}", {"name": "x"}),
        api.patch(f"{base}/{client}/activate"),
        api.patch(f"{base}/{client}/deactivate"),
        api.post(f"{base}/{client}/secret"),
        api.delete(f"{base}/{client}"),
    ]


def test_anonymous_end_users_and_other_tenants_are_rejected(tenant: TestTenant, other_tenant: TestTenant) -> None:
    mine = make_client(tenant)["id"]
    user = tenant.as_user(tenant.register())
    assert {response.status_code for response in calls(Api(), tenant.id, mine)} == {401}
    assert {response.status_code for response in calls(user, tenant.id, mine)} == {403}
    assert {response.status_code for response in calls(other_tenant.api, tenant.id, mine)} == {403}
    nowhere = calls(other_tenant.api, uuid4(), mine)
    assert {response.content for response in nowhere} == {
        response.content for response in calls(other_tenant.api, tenant.id, mine)
    }
    assert tenant.api.get(path(tenant, mine)).json()["active"] is True


def test_client_of_another_tenant_is_404(tenant: TestTenant, other_tenant: TestTenant) -> None:
    foreign = make_client(tenant)["id"]
    for of_foreign, of_unknown, of_odd in zip(
        calls(other_tenant.api, other_tenant.id, foreign)[2:],
        calls(other_tenant.api, other_tenant.id, uuid4())[2:],
        calls(other_tenant.api, other_tenant.id, "no-uuid")[2:],
        strict=True,
    ):
        assert (of_foreign.status_code, of_foreign.content) == (404, of_unknown.content)
        assert (of_odd.status_code, of_odd.content) == (404, of_unknown.content)


def test_auditor_can_only_read(new_tenant: Any) -> None:
    own = new_tenant()
    mark = uuid4().hex[:8]
    member = {"username": f"a-{mark}", "email": f"a-{mark}@example.com", "first_name": "A", "last_name": "B"}
    own.api.post("/uflow/admin/users", {**member, "password": "correct horse 9 bat", "roles": ["auditor"]})
    auditor = Api(token=sign_in_admin(f"a-{mark}", "correct horse 9 bat")["access_token"])
    statuses = [response.status_code for response in calls(auditor, own.id, own.client_id)]
    assert statuses == [200, 403, 200, 403, 403, 403, 403, 403, 403]


def test_an_operator_acts_on_any_tenant_that_exists(tenant: TestTenant, operator: Api) -> None:
    assert operator.post(path(tenant), {"name": "By the operator"}).status_code == 201
    assert operator.get(f"/clientms/tenants/{uuid4()}/clients").status_code == 404
    assert operator.post(f"/clientms/tenants/{uuid4()}/clients", {"name": "x"}).status_code == 404


def test_every_change_is_audited_without_a_secret(tenant: TestTenant) -> None:
    client = make_client(tenant)
    tenant.api.put(path(tenant, client["id"]), {"name": "renamed"})
    secret = tenant.api.post(path(tenant, client["id"], "secret")).json()["client_secret"]
    tenant.api.patch(path(tenant, client["id"], "deactivate"))
    tenant.api.patch(path(tenant, client["id"], "activate"))
    tenant.api.delete(path(tenant, client["id"]))
    events = list(PlatformEvent.objects.filter(target_id=client["id"], tenant_id=tenant.id).order_by("id"))
    assert [event.action for event in events] == [
        "client.created",
        "client.updated",
        "client.secret_rotated",
        "client.deactivated",
        "client.activated",
        "client.deleted",
    ]
    assert {event.actor_id for event in events} == {str(tenant.admin.id)}
    assert not any(secret in str(event.details) or client["client_secret"] in str(event.details) for event in events)


def test_client_changes_no_client_whose_scopes_it_lacks(tenant: TestTenant) -> None:
    name = f"orders-{uuid4().hex[:8]}:approve"
    created = tenant.api.post("/authmgr/roles", {"name": name, "permissions": [name]})
    assert created.status_code == 201, created.content
    strong = make_client(tenant, scopes=[name])
    weak, equal = (
        Api(token=own_token(make_client(tenant, scopes=["clients:write", "roles:write", *more])))
        for more in ([], [name])
    )
    place = path(tenant, strong["id"])
    for api, expected in ((weak, 403), (equal, 200)):
        assert api.post(f"{place}/secret").status_code == expected
        assert api.put(place, {"redirect_uris": []}).status_code == expected
        assert api.patch(f"{place}/deactivate").status_code == expected
        assert api.patch(f"{place}/activate").status_code == expected
        assert api.patch(place, {"scopes": [name, "clients:write"]}).status_code == expected
    assert weak.post(path(tenant), {"name": "x", "type": "confidential", "scopes": [name]}).status_code == 403
    assert weak.delete(place).status_code == 403


@pytest.mark.parametrize("scope", ["endusers:export_hashes", "endusers:factors"])
def test_no_client_exports_hashes_or_resets_factors(tenant: TestTenant, operator: Api, scope: str) -> None:
    for api in (tenant.api, operator):
        body = {"name": "x", "type": "confidential", "scopes": [scope]}
        response = api.post(path(tenant), body, headers={"X-Tenant-ID": str(tenant.id)})
        assert (response.status_code, list(response.json()["details"])) == (400, ["scopes"])
    assert scope not in Api().get("/.well-known/oauth-authorization-server").json()["scopes_supported"]
