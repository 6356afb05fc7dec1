"""Tenants with sign-in domains of their own: issuer, paths, tokens, cookies, passkeys, and what the other address does."""

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import jwt
import pytest
from django.conf import settings as platform
from django.utils.timezone import now

from mfa.webauthn.models import EndUserPasskey
from mfa.webauthn.relying_party import relying_party
from openid.browser import BROWSER, SESSION, cookie_name
from tenants.addresses.domain_claims import GRACE
from tenants.addresses.hosts import budget, check_budget
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.models import DomainClaim, WebAuthnClaim
from tenants.settings.page_addresses import origin_of
from tests.openid.application_sessions import cookie_of
from tests.openid.relying_party import CALLBACK, page_of, query_of, register_application
from tests.openid.sign_in_domains import DOMAINS, ApiAt, ApplicationAt, set_sign_in, sign_in_domain, verified_domain
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.world import Api, TestTenant, capture_statements
from userflow.accounts.realms import END_USERS
from userflow.domains.actions import check_domains
from userflow.sessions.browser import find_browser_session

NewTenant = Callable[[], TestTenant]
METADATA = "/.well-known/openid-configuration"


@pytest.fixture(autouse=True)
def _no_unknown_hosts() -> None:
    budget.clear()
    check_budget.clear()


@pytest.fixture
def home(new_tenant: NewTenant, name_server: DnsServer) -> TestTenant:
    return new_tenant()


def app_at(tenant: TestTenant, domain: str, **fields: Any) -> ApplicationAt:
    return ApplicationAt(tenant, register_application(tenant, first_party=True, **fields), host=domain)


def test_issuer_and_endpoints_move_to_the_domain(home: TestTenant, name_server: DnsServer) -> None:
    old = Api().get(f"/t/{home.slug}{METADATA}").json()
    row = sign_in_domain(home, name_server)
    assert row["sign_in"] is True
    caller = ApiAt(host=row["domain"])
    document = caller.get(METADATA).json()
    origin = origin_of(row["domain"])
    assert document["issuer"] == origin != old["issuer"]
    endpoints = {name: value for name, value in document.items() if name.endswith(("_endpoint", "_uri"))}
    assert {value.rpartition("/")[0] for value in endpoints.values()} == {origin}
    assert caller.get("/.well-known/oauth-authorization-server").json() == document
    assert caller.get("/jwks").json()["keys"]
    for path in (METADATA, "/jwks"):
        assert Api().get(f"/t/{home.slug}{path}").status_code == 404
        assert caller.get(f"/t/{home.slug}{path}").status_code == 404
    assert Api().get(f"/.well-known/oauth-authorization-server/t/{home.slug}").status_code == 404
    assert Api().post(f"/t/{home.slug}/token", {}).status_code == 404


def test_code_flow_on_the_domain(home: TestTenant, name_server: DnsServer) -> None:
    domain = sign_in_domain(home, name_server)["domain"]
    app = app_at(home, domain)
    user = home.register()
    app.sign_in(user)
    response = app.authorize(scope="openid email")
    assert response.status_code == 303, response.content
    answer = query_of(response.headers["Location"])
    assert answer["iss"] == origin_of(domain)
    tokens = app.exchange(answer["code"]).json()
    claims = jwt.decode(tokens["id_token"], options={"verify_signature": False})
    access = jwt.decode(tokens["access_token"], options={"verify_signature": False})
    assert (claims["iss"], access["iss"]) == (origin_of(domain), origin_of(domain))
    shown = ApiAt(host=domain, token=tokens["access_token"]).get("/userinfo")
    assert shown.json()["email"] == user.email
    refreshed = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert refreshed.status_code == 200, refreshed.content


def test_pages_of_the_slug_redirect_to_the_domain(home: TestTenant, name_server: DnsServer) -> None:
    domain = sign_in_domain(home, name_server)["domain"]
    for path in ("/signin", "/account/security?x=1%2F2", "/logout", "//evil.example/"):
        response = Api().get(f"/t/{home.slug}{path}")
        if response.status_code != 404:
            assert (response.status_code, response.headers["Location"]) == (302, f"{origin_of(domain)}{path}")
    assert Api().get(f"/t/{home.slug}/signin").status_code == 302
    assert Api().post(f"/t/{home.slug}/signin", raw=b"email=a", content_type="text/plain").status_code == 404
    assert Api().get(f"/t/{home.slug}/passkey-options").status_code == 404
    issuer = Api().get(f"/t/{home.slug}/")
    assert (issuer.status_code, issuer.headers["Location"]) == (302, f"/t/{home.slug}/account")
    root = ApiAt(host=domain).get("/")
    assert (root.status_code, root.headers["Location"]) == (302, "/account")


@pytest.mark.parametrize(
    "path",
    [
        "/admin/",
        "/docs/",
        "/schema/",
        "/uflow/admin/tenants",
        "/authmgr/token",
        "/metrics",
        "/password/reset",
        "/demo/",
    ],
)
def test_nothing_of_the_platform_is_on_the_domain(home: TestTenant, name_server: DnsServer, path: str) -> None:
    domain = sign_in_domain(home, name_server)["domain"]
    assert ApiAt(host=domain, token=home.api.token).get(path).status_code == 404
    assert ApiAt(host=domain, token=home.api.token).post(path, {}).status_code == 404


def test_unverified_and_plain_domains_are_unknown_hosts(home: TestTenant, name_server: DnsServer) -> None:
    row = verified_domain(home, name_server)
    assert ApiAt(host=row["domain"]).get(METADATA).status_code == 400
    assert ApiAt(host="unknown.example").get("/uflow/admin/tenants").status_code == 400
    budget.clear()
    check_budget.clear()
    set_sign_in(home, row, True)
    for host in (row["domain"].upper(), f"{row['domain']}.", f"{row['domain']}:8443"):
        assert ApiAt(host=host).get(METADATA).status_code == 200
    for host in (f"x.{row['domain']}", f"{row['domain']}@evil.example", f"{row['domain']}, localhost", "ü.example"):
        assert ApiAt(host=host).get(METADATA).status_code == 400, host


def test_sign_in_domain_must_be_verified_and_ones_own(
    home: TestTenant, new_tenant: NewTenant, name_server: DnsServer
) -> None:
    made = home.api.post(DOMAINS, {"domain": f"{secrets.token_hex(5)}.example"}).json()
    assert set_sign_in(home, made, True).status_code == 409
    other = new_tenant()
    row = verified_domain(other, name_server)
    assert set_sign_in(home, row, True).status_code == 404
    assert other.api.patch(f"{DOMAINS}/{row['id']}", {}).status_code == 400


def test_one_sign_in_domain_at_a_time(home: TestTenant, name_server: DnsServer) -> None:
    first, second = sign_in_domain(home, name_server), verified_domain(home, name_server)
    assert set_sign_in(home, second, True).json()["sign_in"] is True
    assert home.api.get(f"{DOMAINS}/{first['id']}").json()["sign_in"] is False
    assert ApiAt(host=first["domain"]).get(METADATA).status_code == 404
    assert ApiAt(host=second["domain"]).get(METADATA).status_code == 200
    assert set_sign_in(home, first, False).status_code == 200
    assert ApiAt(host=second["domain"]).get(METADATA).status_code == 200
    assert set_sign_in(home, second, False).json()["sign_in"] is False
    assert Api().get(f"/t/{home.slug}{METADATA}").json()["issuer"].endswith(f"/t/{home.slug}")
    assert not WebAuthnClaim.objects.filter(tenant_id=home.id).exists()


def test_access_tokens_of_the_old_issuer_end(home: TestTenant, name_server: DnsServer) -> None:
    user = home.register()
    signed_in = home.sign_in(user)
    old = Api(token=signed_in["access_token"])
    assert old.get("/authmgr/profile").status_code == 200
    row = sign_in_domain(home, name_server)
    assert old.get("/authmgr/profile").status_code == 401
    body = {
        "grant_type": "refresh_token",
        "refresh_token": signed_in["refresh_token"],
        "client_id": str(home.client_id),
    }
    renewed = Api().post("/authmgr/token", body)
    assert renewed.status_code == 200, renewed.content
    new = Api(token=renewed.json()["access_token"])
    assert new.get("/authmgr/profile").status_code == 200
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    assert new.get("/authmgr/profile").status_code == 401
    assert Api().get(f"/t/{home.slug}{METADATA}").status_code == 200


def test_two_domains_do_not_mix(home: TestTenant, new_tenant: NewTenant, name_server: DnsServer) -> None:
    other = new_tenant()
    apps = [app_at(each, sign_in_domain(each, name_server)["domain"]) for each in (home, other)]
    tokens = []
    for app in apps:
        app.sign_in(app.tenant.register())
        tokens.append(app.tokens())
    mine, theirs = apps
    for path in ("/userinfo",):
        assert ApiAt(host=mine.host, token=tokens[0]["access_token"]).get(path).status_code == 200
        assert ApiAt(host=theirs.host, token=tokens[0]["access_token"]).get(path).status_code == 401
    # Codes, clients and cookies of one mean nothing at the other.
    stolen = ApplicationAt(home, mine.client, host=theirs.host, verifier=mine.verifier)
    assert stolen.exchange(mine.code()).status_code in (400, 401)
    assert stolen.token(grant_type="refresh_token", refresh_token=tokens[0]["refresh_token"]).status_code in (400, 401)
    stolen.browser.client.cookies = mine.browser.client.cookies
    assert stolen.authorize().status_code == 400
    lost = ApplicationAt(other, theirs.client, host=theirs.host)
    lost.browser.client.cookies = mine.browser.client.cookies
    assert "/signin?request=" in page_of(lost.authorize())
    keys = [{key["kid"] for key in ApiAt(host=app.host).get("/jwks").json()["keys"]} for app in apps]
    assert not keys[0] & keys[1]


def test_cookies_belong_to_one_host(home: TestTenant, name_server: DnsServer, settings: Any) -> None:
    settings.COOKIE_PREFIX, settings.SESSION_COOKIE_SECURE = "__Host-", True
    domain = sign_in_domain(home, name_server)["domain"]
    caller = ApiAt(host=domain)
    page = caller.get("/signin")
    morsel = page.cookies[cookie_name(BROWSER, home.id)]
    assert morsel.key.startswith("__Host-")
    assert (morsel["domain"], morsel["path"], bool(morsel["secure"]), bool(morsel["httponly"])) == ("", "/", True, True)
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    assert f"/t/{home.slug}" not in page.content.decode()
    assert cookie_name(SESSION, home.id) not in page.cookies


def test_hsts_leaves_other_subdomains_alone(home: TestTenant, name_server: DnsServer) -> None:
    domain = sign_in_domain(home, name_server)["domain"]
    response = ApiAt(host=domain).get(METADATA)
    assert "includeSubDomains" not in response.headers.get("Strict-Transport-Security", "")


def test_relying_party_is_the_domain(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    effective = lookup.find(home.id).effective
    assert (effective["webauthn_rp_id"], effective["webauthn_origins"]) == (row["domain"], [origin_of(row["domain"])])
    with in_tenant(home.id):
        party = relying_party(END_USERS)
    assert (party.id, party.origins) == (row["domain"], (origin_of(row["domain"]),))
    related = ApiAt(host=row["domain"]).get("/.well-known/webauthn", {"tenant_id": str(home.id)}).json()
    assert related == {"origins": [origin_of(row["domain"])]}
    assert WebAuthnClaim.objects.get(pk=row["domain"]).tenant_id == home.id


@pytest.mark.parametrize("order", ["origins first", "domain first"])
def test_origins_of_passkeys_include_the_domain(
    home: TestTenant, name_server: DnsServer, operator: Api, order: str
) -> None:
    own = f"https://app.{secrets.token_hex(4)}.example"
    row = verified_domain(home, name_server)
    steps = [
        lambda: operator.patch(f"/uflow/admin/tenants/{home.id}", {"settings": {"webauthn_origins": [own]}}),
        lambda: set_sign_in(home, row, True),
    ]
    for step in steps if order == "origins first" else reversed(steps):
        assert step().status_code == 200
    expected = [own, origin_of(row["domain"])]
    shown = operator.get(f"/uflow/admin/tenants/{home.id}/settings").json()
    assert shown["effective"]["webauthn_origins"] == expected
    with in_tenant(home.id):
        assert list(relying_party(END_USERS).origins) == expected
    assert ApiAt(host=row["domain"]).get("/.well-known/webauthn").json() == {"origins": expected}


def test_passkeys_keep_their_relying_party(home: TestTenant, name_server: DnsServer) -> None:
    row, user = verified_domain(home, name_server), home.register()
    with in_tenant(home.id):
        passkey = EndUserPasskey.objects.create(
            user_id=user.id,
            credential_id=secrets.token_bytes(16),
            public_key=b"key",
            aaguid=UUID(int=0),
            backup_eligible=False,
            backed_up=False,
        )
    rejected = set_sign_in(home, row, True)
    assert (rejected.status_code, list(rejected.json()["details"])) == (400, ["sign_in"])
    assert Api().get(f"/t/{home.slug}{METADATA}").status_code == 200
    with in_tenant(home.id):
        passkey.delete()
    assert set_sign_in(home, row, True).status_code == 200


def test_links_of_mails_lead_to_the_domain(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    effective = lookup.find(home.id).effective
    assert effective["password_reset_url"] == f"{origin_of(row['domain'])}/reset"
    assert effective["invitation_url"] == f"{origin_of(row['domain'])}/invitation"


def test_preflight_on_the_domain(home: TestTenant, name_server: DnsServer) -> None:
    domain = sign_in_domain(home, name_server)["domain"]
    register_application(home, allowed_origins=["https://spa.example.com"])
    asked = {"Origin": "https://spa.example.com", "Access-Control-Request-Method": "POST"}
    allowed = ApiAt(host=domain).call("OPTIONS", "/token", headers=asked)
    assert allowed.headers["Access-Control-Allow-Origin"] == "https://spa.example.com"
    denied = ApiAt(host=domain).call("OPTIONS", "/token", headers={**asked, "Origin": "https://evil.example.com"})
    assert "Access-Control-Allow-Origin" not in denied.headers


def test_errors_of_the_token_endpoint_on_the_domain(home: TestTenant, name_server: DnsServer) -> None:
    app = app_at(home, sign_in_domain(home, name_server)["domain"])
    response = app.token(grant_type="authorization_code", code="x", redirect_uri=CALLBACK, code_verifier="y" * 43)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_grant")


def test_request_on_the_domain_takes_no_more_statements(home: TestTenant, name_server: DnsServer) -> None:
    # The first one makes the tenant's keys.
    assert Api().get(f"/t/{home.slug}{METADATA}").status_code == 200
    with capture_statements() as before:
        assert Api().get(f"/t/{home.slug}{METADATA}").status_code == 200
    domain = sign_in_domain(home, name_server)["domain"]
    # The first one finds out whose domain it is.
    assert ApiAt(host=domain).get(METADATA).status_code == 200
    with capture_statements() as after:
        assert ApiAt(host=domain).get(METADATA).status_code == 200
    assert after.counts == before.counts == (0, 1)


def test_domain_check_knows_sign_in_domains_only(home: TestTenant, name_server: DnsServer) -> None:
    row, plain = sign_in_domain(home, name_server), verified_domain(home, name_server)

    def check(domain: str) -> int:
        return int(Api().get("/t/domain-check", {"domain": domain}).status_code)

    assert [check(row["domain"]), check(f"{row['domain'].upper()}.")] == [200, 200]
    assert [check(plain["domain"]), check("localhost"), check(""), check("a_b.example")] == [404, 404, 404, 404]
    # A proxy asks by address and without TLS.
    asked = ApiAt(host="10.1.2.3:8000").get("/t/domain-check", {"domain": row["domain"]})
    assert asked.status_code == 200
    assert home.slug not in asked.content.decode()


def test_settings_cannot_name_a_domain_of_another_tenant(
    home: TestTenant, new_tenant: NewTenant, name_server: DnsServer, operator: Api
) -> None:
    other = new_tenant()
    domain = verified_domain(home, name_server)["domain"]
    response = operator.patch(f"/uflow/admin/tenants/{other.id}", {"settings": {"webauthn_rp_id": domain}})
    assert response.status_code == 409, response.content
    kept = operator.patch(f"/uflow/admin/tenants/{home.id}", {"settings": {"webauthn_rp_id": domain}})
    assert kept.status_code == 200, kept.content


def test_change_of_settings_keeps_the_claim_of_the_domain(
    home: TestTenant, name_server: DnsServer, operator: Api
) -> None:
    row = sign_in_domain(home, name_server)
    own = f"{secrets.token_hex(4)}.example"
    for value in (own, None):
        operator.patch(f"/uflow/admin/tenants/{home.id}", {"settings": {"webauthn_rp_id": value}})
        assert WebAuthnClaim.objects.filter(pk=row["domain"], tenant_id=home.id).exists()
        rp_id = lookup.find(home.id).effective["webauthn_rp_id"]
        assert rp_id == (value or row["domain"])
    assert set_sign_in(home, row, False).status_code == 200
    assert not WebAuthnClaim.objects.filter(tenant_id=home.id).exists()


def test_withdrawn_domain_returns_the_issuer(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    DomainClaim.objects.filter(pk=row["domain"]).update(lost_since=now() - GRACE - timedelta(minutes=1))
    name_server.records.clear()
    check_domains(tenant_id=home.id)
    assert not DomainClaim.objects.filter(pk=row["domain"]).exists()
    assert ApiAt(host=row["domain"]).get(METADATA).status_code == 400
    document = Api().get(f"/t/{home.slug}{METADATA}").json()
    assert urlsplit(document["issuer"]).path == f"/t/{home.slug}"
    assert document["issuer"].startswith(str(platform.TOKEN_ISSUER))


def test_cookie_of_the_domain_works_nowhere_else(home: TestTenant, name_server: DnsServer) -> None:
    row, user = sign_in_domain(home, name_server), home.register()
    cookie = cookie_of(home, user.email, user.password)
    with in_tenant(home.id):
        assert find_browser_session(cookie) is not None
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    with in_tenant(home.id):
        assert find_browser_session(cookie) is None


def test_domain_with_a_lost_record_gets_no_sign_in(home: TestTenant, name_server: DnsServer) -> None:
    row = verified_domain(home, name_server)
    DomainClaim.objects.filter(pk=row["domain"]).update(lost_since=now())
    assert set_sign_in(home, row, True).status_code == 409
    assert set_sign_in(home, row, False).status_code == 200
