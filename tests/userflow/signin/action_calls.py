"""One good call for each row of the action table that an operation of the API asks about others or about the platform."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.userflow.domains.dns_server import DnsServer
from tests.world import PASSWORD, Api, TestTenant, User, assert_created, sign_in_admin
from userflow.sessions.assurance import REQUIREMENTS, Action


@dataclass
class Scene:
    """A tenant with what the calls are about, made by its admin just before each call."""

    tenant: TestTenant
    operator_name: str
    name_server: DnsServer

    @property
    def query(self) -> dict[str, str]:
        return {"tenant_id": str(self.tenant.id)}

    @property
    def operator(self) -> Api:
        return Api(token=sign_in_admin(self.operator_name)["access_token"])

    @property
    def admin(self) -> Api:
        self.tenant.renew_token()
        return self.tenant.api

    def user(self) -> User:
        return self.tenant.register()

    def role(self, *permissions: str) -> str:
        body = {"name": secrets.token_hex(8), "permissions": permissions or ["orders:read"]}
        return str(assert_created(self.admin.post("/authmgr/roles", body))["id"])

    def group(self, *roles: str) -> str:
        body = {"name": secrets.token_hex(8), "roles": roles}
        return str(assert_created(self.admin.post("/authmgr/groups", body))["id"])

    def client(self, **fields: Any) -> str:
        body = {"name": secrets.token_hex(8), "type": "confidential", **fields}
        return str(assert_created(self.admin.post(f"/clientms/tenants/{self.tenant.id}/clients", body))["id"])

    def other_admin(self) -> User:
        name = f"colleague-{secrets.token_hex(5)}"
        body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD}
        made = assert_created(self.admin.post("/uflow/admin/users", {**body, "first_name": "A", "last_name": "B"}))
        return User(made["id"], body["email"], name)

    def invitation(self) -> str:
        body = {"email": new_address(), "kind": "admin"}
        return str(assert_created(self.admin.post("/uflow/admin/invitations", body))["id"])

    def directory(self) -> str:
        return str(assert_created(self.admin.post("/uflow/directory/configs", directory_body()))["id"])

    def endpoint(self) -> str:
        return str(assert_created(self.admin.post("/uflow/webhooks/endpoints", endpoint_body()))["id"])

    def domain(self, *, verified: bool = False) -> str:
        """A domain whose TXT record is in DNS."""
        body = {"domain": f"{secrets.token_hex(5)}.example"}
        made = assert_created(self.admin.post("/uflow/federation/domains", body))
        self.name_server.records[made["record"]["name"]] = [made["record"]["value"]]
        if verified:
            self.admin.post(f"/uflow/federation/domains/{made['id']}/verify", {})
        return str(made["id"])

    def session(self) -> str:
        user = self.user()
        self.tenant.sign_in(user)
        asked = {"user_id": str(user.id)}
        return str(self.admin.get("/authmgr/sessions", asked).json()["sessions"][0]["id"])


def new_address() -> str:
    return f"new-{secrets.token_hex(6)}@example.com"


def directory_body() -> dict[str, Any]:
    ids = {"directory_tenant_id": "8f6f7c1e-2f0e-4c6e-9c1d-6f2f8f0f6a11", "application_id": "app"}
    return {"name": secrets.token_hex(8), "kind": "entra_id", "secret": "s", **ids}


def endpoint_body() -> dict[str, Any]:
    return {"url": f"https://93.184.216.34/{secrets.token_hex(4)}", "events": ["import.finished"]}


@dataclass(frozen=True)
class Sent:
    """What a call sends: the ids in its path, its body and its query."""

    ids: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A call that asks the row; `build` makes what it is about."""

    operation: str
    row: Action
    build: Callable[[Scene], Sent]
    operators_only: bool = False

    @property
    def for_users_only(self) -> bool:
        """Return whether clients are rejected with any scope."""
        # The invitation that is sent again is one of an admin user.
        of_admins = "/uflow/admin/users" in self.operation or self.operation.endswith("/resend")
        return of_admins or not REQUIREMENTS[self.row].clients

    def __str__(self) -> str:
        return f"{self.operation} {self.row}"

    def call(self, sent: Sent, *, token: str | None, tenant: str) -> Any:
        """Send it with this token, from an address of its own."""
        method, path = self.operation.split(" ")
        return Api(token=token).call(
            method, path.format(**sent.ids), sent.body, query=sent.query, headers={"X-Tenant-ID": tenant}
        )


def _user(scene: Scene, **members: Any) -> Sent:
    user = scene.user()
    return Sent({**scene.query, "user_id": user.id}, members or None)


def _user_in_body(scene: Scene, **members: Any) -> Sent:
    return Sent(body={**scene.query, "user_id": str(scene.user().id), **members})


def _client(scene: Scene, body: Any = None, **fields: Any) -> Sent:
    return Sent({**scene.query, "client_id": scene.client(**fields)}, body)


def _tenant_scope(scene: Scene) -> list[str]:
    scene.role("orders:write")
    return ["orders:write"]


def _doomed(scene: Scene) -> Sent:
    slug = f"doomed-{secrets.token_hex(5)}"
    made = assert_created(scene.operator.post("/uflow/admin/tenants", {"name": slug, "slug": slug}))
    return Sent({"tenant_id": made["tenant_id"]}, {"confirm": slug, "final_backup": False})


_CLIENTS = "/clientms/tenants/{tenant_id}/clients"
_SHUT = Action.END_SESSIONS_OF_OTHERS
CASES = [
    # Other users
    Case(
        "put /uflow/user/enduser/{tenant_id}/{user_id}",
        Action.CHANGE_EMAIL_OF_OTHERS,
        lambda scene: _user(scene, email=new_address()),
    ),
    Case("put /uflow/user/enduser/{tenant_id}/{user_id}/status", _SHUT, lambda scene: _user(scene, active=False)),
    Case("delete /uflow/user/enduser/{tenant_id}/{user_id}", _SHUT, _user),
    Case("post /uflow/admin/enduser/active", _SHUT, lambda scene: _user_in_body(scene, active=False)),
    Case("post /uflow/user/enduser/delete", _SHUT, _user_in_body),
    Case("post /uflow/user/enduser/delete_all", _SHUT, _user_in_body),
    Case(
        "put /uflow/admin/users/{user_id}",
        Action.CHANGE_EMAIL_OF_OTHERS,
        lambda scene: Sent({"user_id": scene.other_admin().id}, {"email": new_address()}),
    ),
    Case("delete /uflow/admin/users/{user_id}", _SHUT, lambda scene: Sent({"user_id": scene.other_admin().id})),
    Case(
        "post /uflow/admin/users/active",
        _SHUT,
        lambda scene: Sent(body={"user_id": str(scene.other_admin().id), "active": False}),
    ),
    Case("delete /authmgr/sessions", _SHUT, lambda scene: Sent(query={"user_id": str(scene.user().id)})),
    Case("delete /authmgr/sessions/{session_id}", _SHUT, lambda scene: Sent({"session_id": scene.session()})),
    Case(
        "post /uflow/admin/enduser/export",
        Action.EXPORT_PASSWORD_HASHES,
        lambda scene: Sent(body={**scene.query, "with_hashes": True}),
    ),
    Case("post /webauthn/factors/reset", Action.RESET_FACTORS, lambda scene: _user_in_body(scene, reason="lost")),
    Case(
        "post /webauthn/admin/factors/reset",
        Action.RESET_FACTORS,
        lambda scene: Sent(body={"user_id": str(scene.other_admin().id), "reason": "lost"}),
    ),
    Case(
        "post /webauthn/enrollment-passes",
        Action.ISSUE_ENROLLMENT_PASS,
        lambda scene: _user_in_body(scene, reason="new phone", delivery="mail"),
    ),
    Case(
        "post /webauthn/admin/enrollment-passes",
        Action.ISSUE_ENROLLMENT_PASS,
        lambda scene: Sent(body={"user_id": str(scene.other_admin().id), "reason": "new phone", "delivery": "mail"}),
    ),
    # Roles
    Case(
        "post /uflow/admin/users",
        Action.GRANT_ROLES,
        lambda scene: Sent(
            body={
                **scene.query,
                "username": f"made-{secrets.token_hex(5)}",
                "email": new_address(),
                "password": PASSWORD,
                "first_name": "A",
                "last_name": "B",
            }
        ),
    ),
    Case(
        "put /uflow/admin/users/{user_id}",
        Action.GRANT_ROLES,
        lambda scene: Sent({"user_id": scene.other_admin().id}, {"roles": ["tenant-admin", "auditor"]}),
    ),
    Case(
        "put /authmgr/roles/{role_id}",
        Action.GRANT_ROLES,
        lambda scene: Sent({"role_id": scene.role()}, {"permissions": ["orders:read", "orders:write"]}),
    ),
    Case(
        "post /authmgr/roles/{role_id}/bindings",
        Action.GRANT_ROLES,
        lambda scene: Sent({"role_id": scene.role()}, {"user_ids": [str(scene.user().id)]}),
    ),
    Case(
        "post /authmgr/groups",
        Action.GRANT_ROLES,
        lambda scene: Sent(body={"name": secrets.token_hex(8), "roles": ["user"]}),
    ),
    Case(
        "put /authmgr/groups/{group_id}",
        Action.GRANT_ROLES,
        lambda scene: Sent({"group_id": scene.group()}, {"roles": ["user"]}),
    ),
    Case(
        "post /authmgr/groups/{group_id}/users",
        Action.GRANT_ROLES,
        lambda scene: Sent({"group_id": scene.group("user")}, {"user_ids": [str(scene.user().id)]}),
    ),
    Case(
        "post /uflow/admin/invitations",
        Action.GRANT_ROLES,
        lambda scene: Sent(body={"email": new_address(), "kind": "end_user", "roles": ["user"]}),
    ),
    Case(
        "post /uflow/admin/invitations/{invitation_id}/resend",
        Action.GRANT_ROLES,
        lambda scene: Sent({"invitation_id": scene.invitation()}),
    ),
    Case(
        "post /uflow/admin/enduser/import",
        Action.GRANT_ROLES,
        lambda scene: Sent(body={**scene.query, "rows": [{"email": new_address(), "roles": ["user"]}]}),
    ),
    # Clients
    Case(
        f"post {_CLIENTS}",
        Action.WRITE_CLIENT_SECRET,
        lambda scene: Sent(scene.query, {"name": secrets.token_hex(8), "type": "confidential"}),
    ),
    Case(
        f"post {_CLIENTS}",
        Action.GRANT_ROLES,
        lambda scene: Sent(scene.query, {"name": secrets.token_hex(8), "scopes": _tenant_scope(scene)}),
    ),
    Case(
        f"put {_CLIENTS}/{{client_id}}",
        Action.WRITE_CLIENT_SECRET,
        lambda scene: _client(scene, {"redirect_uris": ["https://app.example/added"]}),
    ),
    Case(
        f"patch {_CLIENTS}/{{client_id}}",
        Action.WRITE_CLIENT_SECRET,
        lambda scene: _client(scene, {"audiences": ["https://api.example/added"]}),
    ),
    Case(
        f"put {_CLIENTS}/{{client_id}}",
        Action.GRANT_ROLES,
        lambda scene: _client(scene, {"scopes": ["services:read"]}),
    ),
    Case(
        f"patch {_CLIENTS}/{{client_id}}",
        Action.GRANT_ROLES,
        lambda scene: _client(scene, {"scopes": ["services:read"]}),
    ),
    Case(f"put {_CLIENTS}/{{client_id}}", _SHUT, lambda scene: _client(scene, {"active": False})),
    Case(f"patch {_CLIENTS}/{{client_id}}", _SHUT, lambda scene: _client(scene, {"active": False})),
    Case(f"delete {_CLIENTS}/{{client_id}}", _SHUT, _client),
    Case(f"patch {_CLIENTS}/{{client_id}}/deactivate", _SHUT, _client),
    Case(f"post {_CLIENTS}/{{client_id}}/secret", Action.WRITE_CLIENT_SECRET, lambda scene: _client(scene, {})),
    # Connections
    Case("post /uflow/directory/configs", Action.CHANGE_CONNECTIONS, lambda scene: Sent(body=directory_body())),
    Case(
        "put /uflow/directory/configs/{config_id}",
        Action.CHANGE_CONNECTIONS,
        lambda scene: Sent({"config_id": scene.directory()}, {"name": secrets.token_hex(8)}),
    ),
    Case(
        "delete /uflow/directory/configs/{config_id}",
        Action.CHANGE_CONNECTIONS,
        lambda scene: Sent({"config_id": scene.directory()}),
    ),
    Case("post /uflow/webhooks/endpoints", Action.CHANGE_CONNECTIONS, lambda scene: Sent(body=endpoint_body())),
    Case(
        "patch /uflow/webhooks/endpoints/{endpoint_id}",
        Action.CHANGE_CONNECTIONS,
        lambda scene: Sent({"endpoint_id": scene.endpoint()}, {"url": endpoint_body()["url"]}),
    ),
    Case(
        "delete /uflow/webhooks/endpoints/{endpoint_id}",
        Action.CHANGE_CONNECTIONS,
        lambda scene: Sent({"endpoint_id": scene.endpoint()}),
    ),
    Case(
        "post /uflow/webhooks/endpoints/{endpoint_id}/secret",
        Action.CHANGE_CONNECTIONS,
        lambda scene: Sent({"endpoint_id": scene.endpoint()}, {}),
    ),
    # Domains
    Case(
        "post /uflow/federation/domains",
        Action.CHANGE_TENANT_SETTINGS,
        lambda scene: Sent(body={"domain": f"{secrets.token_hex(5)}.example"}),
    ),
    Case(
        "post /uflow/federation/domains/{domain_id}/verify",
        Action.CHANGE_TENANT_SETTINGS,
        lambda scene: Sent({"domain_id": scene.domain()}, {}),
    ),
    Case(
        "patch /uflow/federation/domains/{domain_id}",
        Action.CHANGE_TENANT_SETTINGS,
        lambda scene: Sent({"domain_id": scene.domain(verified=True)}, {"sign_in": False}),
    ),
    Case(
        "delete /uflow/federation/domains/{domain_id}",
        Action.CHANGE_TENANT_SETTINGS,
        lambda scene: Sent({"domain_id": scene.domain()}),
    ),
    # Tenants
    Case(
        "patch /uflow/admin/tenants/{tenant_id}/settings",
        Action.CHANGE_TENANT_SETTINGS,
        lambda scene: Sent(scene.query, {"settings": {"password_min_length": 11}}),
    ),
    Case(
        "patch /uflow/admin/tenants/{tenant_id}/branding",
        Action.CHANGE_TENANT_SETTINGS,
        lambda scene: Sent(scene.query, {"name": "Acme"}),
    ),
    Case(
        "patch /uflow/admin/tenants/{tenant_id}",
        Action.CHANGE_TENANT_SETTINGS,
        lambda scene: Sent(scene.query, {"settings": {"password_min_length": 10}}),
        operators_only=True,
    ),
    Case(
        "patch /uflow/admin/tenants/{tenant_id}",
        Action.CHANGE_TENANT_STATE,
        lambda scene: Sent(_doomed(scene).ids, {"status": "suspended"}),
        operators_only=True,
    ),
    Case("delete /uflow/admin/tenants/{tenant_id}", Action.CHANGE_TENANT_STATE, _doomed, operators_only=True),
]
