"""Clients of the chosen tenant in the console."""

import json
import secrets
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.entering.context import in_tenant, tenant_atomic
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.copies import create_client
from tests.userflow.clients.keys import new_key, public_jwk
from tests.world import Api, TestTenant, capture_statements
from userflow.accounts.models import Client
from userflow.clients.kinds import KINDS
from userflow.events import logouts
from userflow.events.logouts import Logout
from userflow.events.models import DEAD, PENDING, WebhookMessage

LIST = "/admin/userflow/client/"


@pytest.fixture
def head(tenant: TestTenant) -> Staff:
    return new_tenant_admin(tenant).sign_in()


def at(client: Client, page: str = "change") -> str:
    return f"{LIST}{client.pk}/{page}/"


def send(head: Staff, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a form that was opened for the tenant of this admin."""
    return head.post(path, {"form_tenant_id": str(head.tenant_id), **(body or {})})


def made(head: Staff, kind: str = "web", **members: Any) -> tuple[Client, Any]:
    name = f"Client {secrets.token_hex(5)}"
    response = send(head, f"{LIST}add/{kind}/", {"name": name, "scopes": "services:read", **members})
    return Client.objects.get(name=name), response


def sent_by_browser(form: Any) -> dict[str, Any]:
    """The untouched fields of the form, those of the collapsed part too."""
    values = {field.name: field.value() for field in form if field.name != "name"}
    return {name: "on" if value is True else value for name, value in values.items() if value not in (None, False)}


def names(groups: Any) -> list[str]:
    """The names of the fields in these groups of a form."""
    return [field.name for group in groups for field in group.fields]


def state_of(page: Any) -> str:
    """What the form carries about the values that it was rendered with."""
    return str(page.text.partition('name="form_state" value="')[2].partition('"')[0])


def token_status(client: Client, secret: str) -> int:
    grant = {"grant_type": "client_credentials", "client_id": str(client.pk), "client_secret": secret}
    return int(Api().post("/authmgr/token", grant).status_code)


def test_add_client_shows_secret_once(head: Staff) -> None:
    client, response = made(head)
    secret = response.context["secret"]
    assert secret in response.text
    assert "no-store" in response.headers["Cache-Control"]
    assert token_status(client, secret) == 200
    written = [head.get(at(client)).text, head.get("/admin/").text, str(list(PlatformEvent.objects.values()))]
    assert [text for text in written if secret in text] == []


def test_add_client_asks_for_the_kind_first(head: Staff) -> None:
    page = head.get(f"{LIST}add/").text
    assert [f'href="{LIST}add/{kind}/"' in page for kind in KINDS] == [True] * 5
    assert head.get(f"{LIST}add/spaceship/").status_code == 404


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("single-page", ["redirect_uris", "post_logout_redirect_uris", "allowed_origins"]),
        ("web", ["redirect_uris", "post_logout_redirect_uris", "backchannel_logout_uri"]),
        ("native", ["redirect_uris", "post_logout_redirect_uris"]),
        ("device", []),
        ("machine", ["scopes", "audiences"]),
    ],
)
def test_form_shows_what_the_kind_needs(head: Staff, kind: str, needed: list[str]) -> None:
    form = head.get(f"{LIST}add/{kind}/").context["form"]
    shown = names(form.needed_groups())
    assert [name for name in shown if name not in ("self_registration", "first_party")] == ["name", *needed]
    advanced = names(form.advanced_groups())
    assert sorted([*shown, *advanced]) == sorted(form.fields)
    assert ("jwks" in advanced) is (KINDS[kind].type == "confidential")


@pytest.mark.parametrize("kind", KINDS)
def test_new_client_is_of_its_kind(head: Staff, kind: str) -> None:
    form = head.get(f"{LIST}add/{kind}/").context["form"]
    redirects = {"redirect_uris": "https://app.example.com/back"} if "redirect_uris" in KINDS[kind].fields else {}
    client, response = made(head, kind, **{**sent_by_browser(form), "scopes": "", **redirects})
    assert (client.type, tuple(client.grant_types)) == (KINDS[kind].type, KINDS[kind].grant_types)
    assert (client.require_pkce, client.first_party, client.refresh_token_rotation) == (True, False, None)
    assert client.allowed_origins == (["https://app.example.com"] if kind == "single-page" else [])
    assert bool(response.context["secret"]) is (client.type == "confidential")
    form = head.get(at(client, "edit")).context["form"]
    # Both have an https redirect URI here; nothing else tells them apart.
    looks = "single-page" if kind == "native" else kind
    assert names(form.needed_groups()) == ["name", *KINDS[looks].fields]


def test_page_after_saving_connects_the_application(head: Staff, tenant: TestTenant) -> None:
    client, response = made(head, redirect_uris="https://a.example.com/back")
    issuer = f"{settings.TOKEN_ISSUER}/t/{tenant.slug}"
    page, secret = response.text, response.context["secret"]
    assert [f"data-copy>{text}<" in page for text in (issuer, client.pk, secret)] == [True] * 3
    shown = dict(response.context["configuration"])
    assert f"OIDC_CLIENT_SECRET={secret}" in shown["OpenID Connect"]
    assert {"Authlib (Python)", "Auth.js (Next.js)"} < shown.keys()
    # Code reads the secret from the environment.
    assert [name for name, text in shown.items() if secret in text] == ["OpenID Connect"]


def test_stale_rotation_keeps_the_secret_in_use(head: Staff) -> None:
    client, response = made(head)
    state = state_of(head.get(at(client, "rotate")))
    first = send(head, at(client, "rotate"), {"overlap_hours": "24", "form_state": state})
    late = send(head, at(client, "rotate"), {"overlap_hours": "24", "form_state": state})
    assert (late.status_code, "This was changed after you opened the page" in late.text) == (400, True)
    assert [token_status(client, page.context["secret"]) for page in (response, first)] == [200, 200]


def test_list_marks_the_default_client_only(head: Staff) -> None:
    other, _ = made(head)
    default = Client.objects.get(tenant_id=head.tenant_id, is_default=True)
    pages = [head.get(LIST, q=client.name).text for client in (default, other)]
    assert ["yes" in page for page in pages] == [True, False]
    assert ["icon-no" in page for page in pages] == [False, False]


def test_rotated_client_secret_takes_over(head: Staff) -> None:
    client, response = made(head)
    rotated = send(head, at(client, "rotate"), {"overlap_hours": "0"})
    assert token_status(client, response.context["secret"]) == 401
    assert token_status(client, rotated.context["secret"]) == 200
    head.time_passes(16)
    assert send(head, at(client, "rotate"), {"overlap_hours": "0"}).headers["Location"].startswith("/admin/reauth")


def test_client_is_edited_deactivated_and_deleted(head: Staff) -> None:
    client, _ = made(head, redirect_uris="https://a.example.com/back")
    body = {
        "name": client.name,
        "scopes": "services:read",
        "redirect_uris": "https://b.example.com/x",
        "tags": "one\ntwo",
    }
    assert send(head, at(client, "edit"), body).status_code == 302
    client.refresh_from_db()
    assert (client.redirect_uris, client.tags) == (["https://b.example.com/x"], ["one", "two"])
    for page, active in (("deactivate", False), ("activate", True)):
        send(head, at(client, page))
        client.refresh_from_db()
        assert client.active is active
    assert send(head, at(client, "delete")).headers["Location"] == LIST


def test_grant_types_are_shown_in_words(head: Staff) -> None:
    device_code = "urn:ietf:params:oauth:grant-type:device_code"
    client, _ = made(head, grant_types=[device_code, "refresh_token"])
    assert client.grant_types == [device_code, "refresh_token"]
    page = head.get(at(client)).text
    assert "Sign users in on devices without a browser, Renew tokens" in page
    assert device_code not in page
    form = head.get(at(client, "edit")).text
    assert f"Sign users in on devices without a browser: {device_code}" in form


def test_openid_metadata_is_edited(head: Staff) -> None:
    client, _ = made(head, scopes="")
    keys = {"keys": [public_jwk(new_key(), kid="a")]}
    body = {
        "name": client.name,
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": json.dumps(keys),
        "allowed_origins": "https://app.example\nhttp://localhost:3000",
        "grant_types": ["authorization_code"],
        "id_token_signed_response_alg": "RS256",
        "first_party": "on",
        "access_token_seconds": "300",
        "policy_uri": "https://app.example/privacy",
    }
    assert send(head, at(client, "edit"), body).status_code == 302
    client.refresh_from_db()
    assert (client.jwks, client.grant_types, client.first_party) == (keys, ["authorization_code"], True)
    assert client.allowed_origins == ["https://app.example", "http://localhost:3000"]
    assert (client.id_token_signed_response_alg, client.access_token_seconds) == ("RS256", 300)
    # The form was sent without its tick.
    assert client.require_pkce is False
    page = head.get(at(client)).text
    assert "private_key_jwt" in page
    assert "rotate" not in page
    assert send(head, at(client, "edit"), {**body, "policy_uri": "", "access_token_seconds": ""}).status_code == 302
    client.refresh_from_db()
    assert (client.policy_uri, client.access_token_seconds) == ("", None)


def test_edit_names_the_field_of_invalid_metadata(head: Staff) -> None:
    client, _ = made(head, scopes="")
    for field, value in (
        ("allowed_origins", "*"),
        ("jwks", '{"keys": []}'),
        ("jwks_uri", "https://10.0.0.1/"),
        ("token_endpoint_auth_method", "none"),
        ("access_token_seconds", "1"),
        ("logo_uri", "x"),
    ):
        response = send(head, at(client, "edit"), {"name": client.name, field: value})
        assert (response.status_code, list(response.context["form"].errors)) == (400, [field])


# What a browser sends for fields that are left as they are.
UNTOUCHED = {
    "direct_sign_in": "on",
    "require_pkce": "on",
    "require_nonce": "on",
    "id_token_signed_response_alg": "RS256",
    "access_token_signed_response_alg": "ES256",
    "refresh_token_rotation": "",
    "token_endpoint_auth_method": "",
}


def test_security_profile_sets_what_the_form_leaves(head: Staff) -> None:
    keys = json.dumps({"keys": [public_jwk(new_key())]})
    new, response = made(head, **UNTOUCHED, scopes="", jwks=keys, security_profile="fapi2")
    assert response.status_code == 200
    by_secret = {**UNTOUCHED, "token_endpoint_auth_method": "client_secret_basic"}
    before, _ = made(head, **by_secret, scopes="")
    body = {**by_secret, "name": before.name, "jwks": keys}
    assert send(head, at(before, "edit"), {**body, "security_profile": "fapi2"}).status_code == 302
    for client in (new, Client.objects.get(pk=before.pk)):
        assert (client.security_profile, client.token_endpoint_auth_method) == ("fapi2", "private_key_jwt")
        assert (client.require_par, client.dpop_bound_access_tokens) == (True, True)
        assert (client.id_token_signed_response_alg, client.refresh_token_rotation) == ("ES256", False)
        assert "fapi2" in head.get(at(client)).text


def test_nonce_is_optional_without_pkce_only(head: Staff) -> None:
    client, _ = made(head, **UNTOUCHED, scopes="")
    unticked = {name: value for name, value in UNTOUCHED.items() if name != "require_nonce"}
    rejected = send(head, at(client, "edit"), {**unticked, "name": client.name})
    assert (rejected.status_code, list(rejected.context["form"].errors)) == (400, ["require_nonce"])
    assert "RFC 9700 section 2.1.1" in rejected.text
    del unticked["require_pkce"]
    assert send(head, at(client, "edit"), {**unticked, "name": client.name}).status_code == 302
    client.refresh_from_db()
    assert (client.require_pkce, client.require_nonce) == (False, False)
    assert "Requires nonce without PKCE" in head.get(at(client)).text
    back = send(head, at(client, "edit"), {**unticked, "name": client.name, "require_pkce": "on"})
    assert (back.status_code, list(back.context["form"].errors)) == (400, ["require_nonce"])
    # A single-page application has no such field.
    assert "require_nonce" not in head.get(f"{LIST}add/single-page/").text


def test_security_profile_names_what_is_missing(head: Staff) -> None:
    client, _ = made(head, **UNTOUCHED, scopes="")
    body = {**UNTOUCHED, "name": client.name, "security_profile": "fapi2", "redirect_uris": "com.example.app:/back"}
    contrary = {"access_token_signed_response_alg": "RS256", "refresh_token_rotation": "True", "require_pkce": ""}
    response = send(head, at(client, "edit"), {**body, **contrary})
    assert response.status_code == 400
    expected = {*contrary, "redirect_uris", "token_endpoint_auth_method"}
    assert set(response.context["form"].errors) == expected
    assert "FAPI 2.0 does not allow RS256. Send ES256 or leave it out." in response.text
    client.refresh_from_db()
    assert (client.security_profile, client.require_par) == ("", False)


def test_client_page_shows_a_configuration_to_copy(head: Staff, tenant: TestTenant) -> None:
    client, _ = made(head, redirect_uris="https://a.example.com/back")
    issuer = f"{settings.TOKEN_ISSUER}/t/{tenant.slug}"
    confidential, public = head.get(at(client)), head.get(at(Client.objects.get(pk=tenant.client_id)))
    shown = dict(confidential.context["configuration"])
    assert f"OIDC_DISCOVERY_URL={issuer}/.well-known/openid-configuration" in shown["OpenID Connect"]
    assert {"Authlib (Python)", "Auth.js (Next.js)"} < shown.keys()
    assert all(str(client.pk) in text for text in shown.values())
    assert issuer in public.text
    assert "client secret" not in public.text


def test_validation_errors_are_shown_at_the_field(head: Staff, tenant: TestTenant) -> None:
    body = {"form_tenant_id": str(tenant.id), "name": "x"}
    response = head.post(f"{LIST}add/native/", {**body, "scopes": "tenants:write"})
    assert (response.status_code, "scopes" in response.context["form"].errors) == (400, True)
    assert '<details class="record-more mb-4" open>' in response.text
    response = head.post(f"{LIST}add/native/", {**body, "redirect_uris": "javascript:alert(1)"})
    assert (response.status_code, "redirect_uris" in response.context["form"].errors) == (400, True)
    assert '<details class="record-more mb-4">' in response.text
    response = send(head, f"{LIST}{tenant.client_id}/delete/")
    assert response.status_code == 400


def test_clients_of_other_tenant_are_404(head: Staff, tenant: TestTenant, other_tenant: TestTenant) -> None:
    foreign = Client.objects.get(pk=other_tenant.client_id)
    operator = new_operator().sign_in().choose(tenant)
    for person in (head, operator):
        for page in ("change", "edit", "deactivate", "rotate", "delete"):
            assert [person.get(at(foreign, page)).status_code, person.post(at(foreign, page)).status_code] == [404, 404]
    foreign.refresh_from_db()
    assert foreign.active


def test_form_of_another_tenant_changes_no_client(tenant: TestTenant, other_tenant: TestTenant) -> None:
    operator = new_operator().sign_in().choose(tenant)
    client = create_client(tenant_id=tenant.id, name="Shop", type="confidential")
    for page in ("edit", "deactivate", "rotate", "logouts", "delete"):
        response = operator.post(at(client, page), {"form_tenant_id": str(other_tenant.id), "name": "x"})
        assert response.status_code == 409, page
    client.refresh_from_db()
    assert (client.active, client.name, client.secret_digest) == (True, "Shop", None)


def test_read_permission_does_not_allow_changes(tenant: TestTenant) -> None:
    client = Client.objects.get(pk=tenant.client_id)
    reader = new_tenant_admin(tenant, "clients:read").sign_in()
    assert "deactivate" not in reader.get(at(client)).text
    for page in ("edit", "deactivate", "rotate", "delete"):
        assert [reader.get(at(client, page)).status_code, reader.post(at(client, page)).status_code] == [403, 403]


def test_lists_and_pages_cost_the_same_with_many(head: Staff, tenant: TestTenant) -> None:
    for _ in range(5):
        create_client(tenant_id=tenant.id, name=secrets.token_hex(4))
    for path, costs in ((LIST, 5), (f"{LIST}{tenant.client_id}/change/", 4)):
        with capture_statements() as seen:
            assert head.get(path).status_code == 200
        assert seen.counts == (costs, 0), "\n".join(seen.default)


def test_client_page_lists_logout_tokens_and_retries_them(head: Staff, tenant: TestTenant) -> None:
    client, _ = made(head, backchannel_logout_uri="https://app.example.com/logout")
    assert "No logout token has been sent yet." in head.get(at(client)).text
    with in_tenant(tenant.id), tenant_atomic():
        assert logouts.write([Logout(client.pk, uuid4(), uuid4())]) == 1
        WebhookMessage.objects.filter(endpoint_id=client.pk).update(status=DEAD, last_status=400, settled_at=now())
    page = head.get(at(client)).text
    assert ("400" in page, at(client, "logouts") in page) == (True, True)
    response = head.post(at(client, "logouts"), {"form_tenant_id": str(tenant.id)})
    assert response.status_code == 302, response.text
    with in_tenant(tenant.id):
        assert WebhookMessage.objects.get(endpoint_id=client.pk).status == PENDING
        assert TenantEvent.objects.filter(action="client.logouts_retried", target_id=str(client.pk)).exists()
        WebhookMessage.objects.filter(endpoint_id=client.pk).delete()
    assert f"/{client.pk}/logouts/" not in head.get(at(client)).text


def test_logout_tokens_of_other_tenant_are_not_found(head: Staff, other_tenant: TestTenant) -> None:
    foreign = Client.objects.get(pk=other_tenant.client_id)
    assert head.get(at(foreign)).status_code == 404
    assert head.post(at(foreign, "logouts"), {"form_tenant_id": str(other_tenant.id)}).status_code in (404, 409)
