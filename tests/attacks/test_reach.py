"""A caller with one permission redirects the tokens, codes, links or secrets of others: rejected, and nothing changes.

Beside each attack stands the admin with all permissions of the tenant, for whom the same request works.
"""

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from identity_platform.audit.models import PlatformEvent
from tenants.entering.context import in_tenant
from tenants.settings.declarations import SETTINGS
from tests.console.staff import new_operator, new_tenant_admin
from tests.openid.sign_in_domains import set_sign_in, verified_domain
from tests.tenants.records import sessions_locked
from tests.userflow.domains.conftest import _dns_server, name_server  # noqa: F401  # fixtures
from tests.userflow.domains.dns_server import DnsServer
from tests.userflow.mailbox import mails_to
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import Api, TestTenant, assert_created
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION, TENANT_PERMISSIONS
from userflow.clients.session_changes import apply_changes
from userflow.events.catalogue import EVENTS, READ_BY_KIND
from userflow.events.models import WebhookMessage

ATTACKER = "https://attacker.example/cb"
ENDPOINTS, SERVICES = "/uflow/webhooks/endpoints", "/exsvc/api/v1/services"
KEY = {
    "keys": [
        {
            "kty": "EC",
            "crv": "P-256",
            "kid": "thief",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        }
    ]
}
# Each sends codes, tokens or users elsewhere, or changes by what the application authenticates.
TAKEOVERS: dict[str, dict[str, Any]] = {
    "redirect_uris": {"redirect_uris": [ATTACKER], "audiences": ["identity-api"]},
    "audiences": {"audiences": ["identity-api"]},
    "post_logout_redirect_uris": {"post_logout_redirect_uris": [ATTACKER]},
    "backchannel_logout_uri": {"backchannel_logout_uri": ATTACKER},
    "allowed_origins": {"allowed_origins": ["https://attacker.example"]},
    "grant_types": {"grant_types": ["urn:ietf:params:oauth:grant-type:device_code"]},
    "keys": {"jwks": KEY},
    "keys elsewhere": {"jwks_uri": "https://attacker.example/jwks"},
    "method": {"jwks": KEY, "token_endpoint_auth_method": "private_key_jwt"},
    "first_party": {"first_party": False},
    "state": {"active": False},
    "state and name": {"name": "Renamed", "active": False},
}


def clients_of(tenant: TestTenant, client_id: object = "") -> str:
    return f"/clientms/tenants/{tenant.id}/clients{f'/{client_id}' if client_id else ''}"


def machine(tenant: TestTenant, *scopes: str) -> Api:
    """Return a client of the tenant with these scopes."""
    return Api(token=own_token(make_client(tenant, name="Machine", scopes=list(scopes))))


def weak_admin(tenant: TestTenant, *permissions: str) -> Api:
    return Api(token=new_tenant_admin(tenant, *permissions).api_token())


ALL_BUT_ONE = tuple(permission for permission in TENANT_PERMISSIONS if permission != "services:credentials")
WEAK: dict[str, Callable[[TestTenant], Api]] = {
    "machine": lambda tenant: machine(tenant, "clients:read", "clients:write"),
    "admin": lambda tenant: weak_admin(tenant, "clients:read", "clients:write"),
    "admin without one permission": lambda tenant: weak_admin(tenant, *ALL_BUT_ONE),
    "operator": lambda tenant: Api(token=new_operator("clients:read", "clients:write").api_token()),
}


@pytest.fixture(params=WEAK)
def weak(request: Any, tenant: TestTenant) -> Api:
    return WEAK[request.param](tenant)


@pytest.fixture
def app(tenant: TestTenant) -> dict[str, Any]:
    """A first-party client with a secret."""
    return make_client(tenant, scopes=[], first_party=True, redirect_uris=["https://app.example/cb"])


def is_rejected(response: Any) -> bool:
    """Return whether rank is missing. The errors of the registry have no code."""
    code = response.json().get("code", "grant_exceeds_permissions") if response.status_code == 403 else ""
    return bool(code == "grant_exceeds_permissions")


@pytest.mark.parametrize("change", TAKEOVERS)
def test_weak_caller_moves_no_first_party_client(
    tenant: TestTenant, weak: Api, app: dict[str, Any], change: str
) -> None:
    path = clients_of(tenant, app["client_id"])
    before = tenant.api.get(path).json()
    for method in ("PATCH", "PUT"):
        response = weak.call(method, path, TAKEOVERS[change])
        assert is_rejected(response), response.content
    assert tenant.api.get(path).json() == before


@pytest.mark.parametrize("change", TAKEOVERS)
def test_strong_admin_moves_a_first_party_client(tenant: TestTenant, app: dict[str, Any], change: str) -> None:
    response = tenant.api.patch(clients_of(tenant, app["client_id"]), TAKEOVERS[change])
    assert response.status_code == 200, response.content


def test_weak_caller_takes_no_default_client(tenant: TestTenant, weak: Api) -> None:
    path = clients_of(tenant, tenant.client_id)
    assert is_rejected(weak.patch(path, TAKEOVERS["redirect_uris"]))
    assert is_rejected(weak.patch(f"{path}/deactivate"))
    # What it shows, and where no token goes, is not part of its reach.
    assert weak.patch(path, {"tags": [secrets.token_hex(4)]}).status_code == 200
    assert ATTACKER not in tenant.api.get(path).json()["redirect_uris"]


def test_weak_caller_gets_no_secret_of_a_first_party_client(tenant: TestTenant, weak: Api, app: dict[str, Any]) -> None:
    path = clients_of(tenant, app["client_id"])
    assert is_rejected(weak.post(f"{path}/secret", {}))
    assert is_rejected(weak.patch(f"{path}/deactivate"))
    assert is_rejected(weak.patch(f"{path}/activate"))
    assert is_rejected(weak.delete(path))
    assert tenant.api.get(path).json()["status"] == "Active"
    assert tenant.api.post(f"{path}/secret", {}).status_code == 200
    assert tenant.api.patch(f"{path}/deactivate").status_code == 200
    assert is_rejected(weak.patch(f"{path}/activate"))
    assert tenant.api.patch(f"{path}/activate").status_code == 200
    assert tenant.api.delete(path).status_code == 200


def test_weak_caller_makes_no_first_party_client(tenant: TestTenant, weak: Api) -> None:
    own = assert_created(weak.post(clients_of(tenant), {"name": "Own", "redirect_uris": [ATTACKER]}))
    assert is_rejected(weak.patch(clients_of(tenant, own["client_id"]), {"first_party": True}))
    name = f"new {secrets.token_hex(4)}"
    assert is_rejected(weak.post(clients_of(tenant), {"name": name, "first_party": True}))
    assert tenant.api.get(clients_of(tenant), {"name": name}).json()["clients"] == []
    assert_created(tenant.api.post(clients_of(tenant), {"name": name, "first_party": True}))


def test_machine_with_every_scope_moves_no_first_party_client(tenant: TestTenant, app: dict[str, Any]) -> None:
    scopes = [name for name in TENANT_PERMISSIONS if name not in _NOT_FOR_MACHINES]
    strong = machine(tenant, *scopes)
    response = strong.patch(clients_of(tenant, app["client_id"]), TAKEOVERS["redirect_uris"])
    assert is_rejected(response), response.content
    # Its own kind of client, which asks users for consent, it may move.
    third = make_client(tenant, scopes=["services:read"])
    assert strong.patch(clients_of(tenant, third["client_id"]), {"redirect_uris": [ATTACKER]}).status_code == 200


_NOT_FOR_MACHINES = {"endusers:factors", "endusers:export_hashes", "endusers:history", "domains:write"}


def test_client_that_still_has_first_party_sessions_counts_as_one(tenant: TestTenant) -> None:
    app = make_client(tenant, scopes=[], first_party=True)
    person = tenant.register()
    body = {"client_id": app["client_id"], "client_secret": app["client_secret"]}
    login = {**body, "email": person.email, "password": person.password}
    assert Api().post("/uflow/auth/enduser/login", login).status_code == 200
    path = clients_of(tenant, app["client_id"])
    weak = WEAK["machine"](tenant)
    with sessions_locked(tenant):
        assert tenant.api.patch(path, {"first_party": False}).status_code == 200
        assert is_rejected(weak.post(f"{path}/secret", {}))
        assert is_rejected(weak.patch(path, {"redirect_uris": [ATTACKER]}))
    apply_changes(tenant.id)
    assert weak.post(f"{path}/secret", {}).status_code == 200


def test_admin_of_another_tenant_finds_no_client(
    tenant: TestTenant, other_tenant: TestTenant, app: dict[str, Any]
) -> None:
    response = other_tenant.api.patch(clients_of(other_tenant, app["client_id"]), TAKEOVERS["redirect_uris"])
    assert response.status_code == 404
    assert other_tenant.api.patch(clients_of(tenant, app["client_id"]), {}).status_code == 403


def test_moved_client_is_mailed_and_audited(new_tenant: Callable[[], TestTenant], other_tenant: TestTenant) -> None:
    home = new_tenant()
    path = clients_of(home, home.client_id)
    assert home.api.patch(path, {"redirect_uris": ["https://app.example/cb"]}).status_code == 200
    (mail,) = mails_to(home.admin.email, "were changed")
    assert home.admin.username in mail.body
    assert "redirect_uris" in mail.body
    assert mails_to(other_tenant.admin.email, "were changed") == []
    event = PlatformEvent.objects.filter(tenant_id=home.id, action="client.updated").latest("id")
    assert event.details["before"] == {"redirect_uris": []}
    assert event.details["after"] == {"redirect_uris": ["https://app.example/cb"]}
    # Other fields tell no one.
    assert home.api.patch(path, {"tags": ["a"]}).status_code == 200
    assert len(mails_to(home.admin.email, "were changed")) == 1


# --- settings and domains --------------------------------------------------------------------------------------------

PAGES = ("password_reset_url", "email_verification_url", "invitation_url")


@pytest.mark.parametrize("setting", PAGES)
def test_weak_caller_moves_no_links_of_mails(
    new_tenant: Callable[[], TestTenant], other_tenant: TestTenant, setting: str
) -> None:
    home = new_tenant()
    path, body = f"/uflow/admin/tenants/{home.id}/settings", {"settings": {setting: ATTACKER}}
    operator = Api(token=new_operator("tenants:read", "tenants:write").api_token())
    for weak in (weak_admin(home, "admins:write"), weak_admin(home, *ALL_BUT_ONE), operator):
        assert is_rejected(weak.patch(path, body))
    assert is_rejected(operator.patch(f"/uflow/admin/tenants/{home.id}", body))
    assert machine(home, "admins:write").patch(path, body).status_code == 403
    assert other_tenant.api.patch(path, body).status_code == 403
    assert home.api.get(path).json()["settings"] == {}
    # Others of them route nothing.
    assert weak_admin(home, "admins:write").patch(path, {"settings": {"password_min_length": 12}}).status_code == 200
    assert mails_to(home.admin.email, "were changed") == []

    assert home.api.patch(path, body).status_code == 200
    (mail,) = mails_to(home.admin.email, "were changed")
    assert setting in mail.body
    event = PlatformEvent.objects.filter(tenant_id=home.id, action="tenant.updated").latest("id")
    assert (event.details["before"], event.details["after"]) == ({setting: None}, {setting: ATTACKER})
    # Back to the default is a change too.
    assert is_rejected(weak_admin(home, "admins:write").patch(path, {"settings": {setting: None}}))


def test_weak_operator_moves_no_slug(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    home = new_tenant()
    path, body = f"/uflow/admin/tenants/{home.id}", {"slug": f"moved-{secrets.token_hex(5)}", "confirm": home.slug}
    weak = Api(token=new_operator("tenants:read", "tenants:write").api_token())
    assert is_rejected(weak.patch(path, body))
    assert operator.get(path).json()["slug"] == home.slug
    assert weak.patch(path, {"name": home.name}).status_code == 200
    assert operator.patch(path, body).status_code == 200


def test_weak_operator_creates_no_tenant_with_own_pages(operator: Api) -> None:
    weak = Api(token=new_operator("tenants:read", "tenants:write").api_token())
    slug = f"new-{secrets.token_hex(5)}"
    body = {"name": slug, "slug": slug, "settings": {"password_reset_url": ATTACKER}}
    assert is_rejected(weak.post("/uflow/admin/tenants", body))
    assert operator.get("/uflow/admin/tenants", {"slug": slug}).json()["tenants"] == []


def test_weak_caller_moves_no_sign_in_domain(
    new_tenant: Callable[[], TestTenant],
    name_server: DnsServer,  # noqa: F811
) -> None:
    home = new_tenant()
    row = verified_domain(home, name_server)
    path = f"/uflow/federation/domains/{row['id']}"
    weak = weak_admin(home, "domains:read", "domains:write")
    assert is_rejected(weak.patch(path, {"sign_in": True}))
    assert home.api.get(path).json()["sign_in"] is False
    assert mails_to(home.admin.email, "were changed") == []
    assert set_sign_in(home, row, True).status_code == 200
    assert len(mails_to(home.admin.email, "were changed")) == 1
    # The issuer has changed, and with it the tokens.
    strong = Api(token=new_tenant_admin(home).api_token())
    weak = weak_admin(home, "domains:read", "domains:write")
    assert is_rejected(weak.patch(path, {"sign_in": False}))
    assert is_rejected(weak.delete(path))
    assert strong.get(path).json()["sign_in"] is True
    assert strong.patch(path, {"sign_in": False}).status_code == 200
    assert weak.delete(path).status_code == 200


# --- services and webhooks -------------------------------------------------------------------------------------------


def test_service_with_credentials_is_not_moved(tenant: TestTenant) -> None:
    body = {"name": f"crm {secrets.token_hex(4)}", "type": "crm", "base_url": "https://crm.example.com"}
    service = assert_created(tenant.api.post(SERVICES, body))
    path = f"{SERVICES}/{service['id']}"
    weak = machine(tenant, "services:read", "services:write")
    # Nothing is sent there yet.
    assert weak.put(path, {"base_url": "https://new.example.com"}).status_code == 200
    assert_created(tenant.api.post(f"{path}/credentials", {"name": "key", "secret": "s3cret"}))
    assert is_rejected(weak.put(path, {"base_url": "https://attacker.example", "description": "moved"}))
    kept = tenant.api.get(path).json()
    assert (kept["base_url"], kept["description"]) == ("https://new.example.com", "")
    assert weak.put(path, {"base_url": "https://new.example.com", "description": "same"}).status_code == 200
    strong = machine(tenant, "services:read", "services:write", "services:credentials")
    assert strong.put(path, {"base_url": "https://newer.example.com"}).status_code == 200
    event = PlatformEvent.objects.filter(action="service.updated", target_id=service["id"]).latest("id")
    assert event.details["after"] == {"base_url": "https://newer.example.com"}


@pytest.fixture
def receiver(settings: Any) -> str:
    settings.WEBHOOK_ALLOWED_NETWORKS, settings.WEBHOOK_PLAIN_HTTP = ["127.0.0.0/8"], True
    return f"http://127.0.0.1:9/{secrets.token_hex(5)}"


@pytest.mark.parametrize("events", [["*"], ["end_user.*"], ["end_user.created"], ["group.*"], ["domain.*", "factor.*"]])
def test_weak_caller_receives_no_events_about_people(
    new_tenant: Callable[[], TestTenant], receiver: str, events: list[str]
) -> None:
    home = new_tenant()
    weak = machine(home, "webhooks:read", "webhooks:write", "domains:read")
    own = assert_created(weak.post(ENDPOINTS, {"url": receiver, "events": ["domain.*"]}))
    assert is_rejected(weak.post(ENDPOINTS, {"url": receiver, "events": events}))
    assert is_rejected(weak.patch(f"{ENDPOINTS}/{own['id']}", {"events": events}))
    strong = assert_created(home.api.post(ENDPOINTS, {"url": receiver, "events": events}))
    path = f"{ENDPOINTS}/{strong['id']}"
    for change in ({"url": f"{receiver}/x"}, {"events": ["domain.*"]}, {"enabled": False}, {"description": "x"}):
        assert is_rejected(weak.patch(path, change))
    assert is_rejected(weak.post(f"{path}/secret", {}))
    assert is_rejected(weak.post(f"{path}/replay", {"status": "dead"}))
    assert is_rejected(weak.delete(path))
    shown = home.api.get(path).json()
    assert (shown["url"], shown["events"], shown["enabled"]) == (receiver, events, True)
    assert len(home.api.get(ENDPOINTS).json()["endpoints"]) == 2
    assert weak.patch(f"{ENDPOINTS}/{own['id']}", {"url": f"{receiver}/own"}).status_code == 200
    assert home.api.patch(path, {"url": f"{receiver}/x"}).status_code == 200
    assert home.api.post(f"{path}/replay", {"status": "dead"}).status_code == 200


def test_stored_messages_count_after_their_event_is_left(new_tenant: Callable[[], TestTenant], receiver: str) -> None:
    home = new_tenant()
    made = assert_created(home.api.post(ENDPOINTS, {"url": receiver, "events": ["end_user.*"]}))
    path = f"{ENDPOINTS}/{made['id']}"
    home.register()
    assert home.api.patch(path, {"events": ["domain.*"]}).status_code == 200
    weak = machine(home, "webhooks:read", "webhooks:write", "domains:read")
    assert is_rejected(weak.patch(path, {"url": f"{receiver}/thief"}))
    assert is_rejected(weak.post(f"{path}/replay", {"status": "dead"}))
    with in_tenant(home.id):
        WebhookMessage.objects.filter(endpoint_id=made["id"]).delete()
    assert weak.patch(path, {"url": f"{receiver}/own"}).status_code == 200


def test_every_kind_of_event_has_its_permission() -> None:
    assert {event.partition(".")[0] for event in EVENTS} == READ_BY_KIND.keys()
    assert set(READ_BY_KIND.values()) <= set(EVERY_PERMISSION)


# --- the console -----------------------------------------------------------------------------------------------------


def test_weak_admin_moves_nothing_in_the_console(new_tenant: Callable[[], TestTenant], receiver: str) -> None:
    home = new_tenant()
    app = make_client(home, scopes=[], first_party=True)
    endpoint = assert_created(home.api.post(ENDPOINTS, {"url": receiver, "events": ["*"]}))
    body = {"name": f"crm {secrets.token_hex(4)}", "type": "crm", "base_url": "https://crm.example.com"}
    service = assert_created(home.api.post(SERVICES, body))
    assert_created(home.api.post(f"{SERVICES}/{service['id']}/credentials", {"name": "key", "secret": "s3cret"}))
    settings_form = {"name": home.name, "slug": home.slug, **dict.fromkeys(SETTINGS, "")}
    client = f"/admin/userflow/client/{app['client_id']}"
    hook, registry = f"/admin/platform/webhooks/{endpoint['id']}", f"/admin/registry/service/{service['id']}"
    forms: list[tuple[str, dict[str, Any], str]] = [
        (f"{client}/rotate/", {"overlap_hours": "0"}, "first-party"),
        (f"{client}/deactivate/", {}, "first-party"),
        (f"{client}/delete/", {}, "first-party"),
        (f"/admin/tenants/tenant/{home.id}/settings/", {**settings_form, "password_reset_url": ATTACKER}, "links of"),
        (f"{hook}/rotate/", {}, "endpoint receives data"),
        (f"{hook}/replay/", {}, "endpoint receives data"),
        (f"{hook}/delete/", {}, "endpoint receives data"),
        (
            f"{registry}/edit/",
            {**body, "base_url": "https://attacker.example", "status": "active", "metadata": "{}"},
            "has credentials",
        ),
    ]
    permissions = {name for name in TENANT_PERMISSIONS if name.split(":")[0] in ("clients", "webhooks", "admins")}
    weak = new_tenant_admin(home, *permissions, "services:read", "services:write").sign_in()
    for path, form, says in forms:
        response = weak.post(path, {"form_tenant_id": str(home.id), **form})
        assert (response.status_code, says in response.text) == (400, True), (path, response.text[-3000:])
    assert home.api.get(clients_of(home, app["client_id"])).json()["status"] == "Active"
    assert home.api.get(f"/uflow/admin/tenants/{home.id}/settings").json()["settings"] == {}
    assert home.api.get(f"{ENDPOINTS}/{endpoint['id']}").status_code == 200
    assert home.api.get(f"{SERVICES}/{service['id']}").json()["base_url"] == body["base_url"]
    strong = new_tenant_admin(home).sign_in()
    for path, form, _says in forms:
        response = strong.post(path, {"form_tenant_id": str(home.id), **form})
        assert response.status_code in (200, 302), (path, response.text[-3000:])
