"""An outsider at the hosts of two tenants: headers that name another host, and cookies and forms of the other tenant."""

from collections.abc import Callable

import pytest

from openid.browser import BROWSER, SESSION, cookie_name
from tenants.addresses.hosts import budget, check_budget
from tests.openid.relying_party import CALLBACK, Application, page_of, query_of, register_application
from tests.openid.sign_in_domains import ApiAt, ApplicationAt, set_sign_in, sign_in_domain
from tests.openid.test_sign_in_domains import METADATA, app_at
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.userflow.mailbox import mails_to
from tests.world import Api, TestTenant

NewTenant = Callable[[], TestTenant]
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(autouse=True)
def _no_unknown_hosts() -> None:
    budget.clear()
    check_budget.clear()


@pytest.fixture
def home(new_tenant: NewTenant, name_server: DnsServer) -> TestTenant:
    return new_tenant()


@pytest.mark.parametrize("header", ["X-Forwarded-Host", "X-Host", "Forwarded", "X-Forwarded-Server", "X-Original-Host"])
def test_other_headers_name_no_host(home: TestTenant, name_server: DnsServer, header: str) -> None:
    domain = sign_in_domain(home, name_server)["domain"]
    value = f"host={domain}" if header == "Forwarded" else domain
    assert Api().call("GET", METADATA, headers={header: value}).status_code == 404
    evil = {header: value.replace(domain, "evil.example")}
    document = ApiAt(host=domain).call("GET", METADATA, headers=evil)
    assert "evil.example" not in document.content.decode()
    page = ApiAt(host=domain).call("GET", "/account", headers=evil)
    assert (page.status_code, page.headers["Location"]) == (303, "/signin")


def test_forged_host_is_in_no_mail(home: TestTenant, name_server: DnsServer, new_tenant: NewTenant) -> None:
    other = new_tenant()
    domain = sign_in_domain(other, name_server)["domain"]
    user = home.register()
    body = {"client_id": str(home.client_id), "email": user.email}
    path = "/uflow/auth/enduser/password/forgot"
    # The API is not there, and what the domain's own form sends is about its own tenant.
    assert ApiAt(host=domain).post(path, body).status_code == 404
    assert Api().call("POST", path, body, headers={"X-Forwarded-Host": domain}).status_code == 200
    assert not [sent for sent in mails_to(user.email) if domain in sent.body]


def test_former_domain_keeps_cookies_to_itself(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    app, user = app_at(home, row["domain"]), home.register()
    app.sign_in(user)
    app.authorize()
    jar = app.browser.client.cookies
    assert jar[cookie_name(SESSION, home.id)].value
    set_sign_in(home, row, False)
    moved = app.browser.get("/account")
    assert (moved.status_code, moved.cookies) == (302, {})
    # The same cookies open no session at the tenant's other address.
    at_slug = Api(client=app.browser.client)
    response = at_slug.get(f"/t/{home.slug}/account")
    assert (response.status_code, response.headers["Location"]) == (303, f"/t/{home.slug}/signin")


def test_cookie_of_the_slug_means_nothing_at_the_domain(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    # The first use of a domain ends all sessions of browsers, a return to it does not.
    set_sign_in(home, row, False)
    user, at_slug = home.register(), Application(home, register_application(home, first_party=True))
    at_slug.sign_in(user)
    assert at_slug.authorize(prompt="none").headers["Location"].startswith(f"{CALLBACK}?code=")
    set_sign_in(home, row, True)
    at_slug_cookie = at_slug.browser.client.cookies[cookie_name(SESSION, home.id)].value
    # A browser does not send it: a cookie belongs to one host. Carried over by hand, it opens nothing.
    tossed = ApplicationAt(home, at_slug.client, host=row["domain"])
    tossed.browser.client.cookies = at_slug.browser.client.cookies
    account = tossed.browser.get("/account")
    assert (account.status_code, account.headers["Location"]) == (303, "/signin")
    silent = query_of(tossed.authorize(prompt="none").headers["Location"])
    assert silent["error"] == "login_required"
    assert tossed.browser.post("/signout", raw=b"", content_type=FORM).status_code == 403
    tossed.browser.get("/logout")
    # It ended nothing either: back at the slug the session goes on.
    set_sign_in(home, row, False)
    back = Application(home, at_slug.client)
    back.browser.client.cookies[cookie_name(SESSION, home.id)] = at_slug_cookie
    assert back.authorize(prompt="none").headers["Location"].startswith(f"{CALLBACK}?code=")


def test_request_of_the_slug_is_unknown_at_the_domain(home: TestTenant, name_server: DnsServer) -> None:
    at_slug = Application(home, register_application(home, first_party=True))
    page = page_of(at_slug.authorize())
    row = sign_in_domain(home, name_server)
    tossed = ApiAt(host=row["domain"])
    tossed.client.cookies = at_slug.browser.client.cookies
    response = tossed.get(page.removeprefix(f"/t/{home.slug}"))
    assert (response.status_code, "Go back to the application" in response.content.decode()) == (400, True)
    set_sign_in(home, row, False)
    assert at_slug.browser.get(page).status_code == 200


def test_form_of_one_tenant_is_no_form_of_the_other(
    home: TestTenant, new_tenant: NewTenant, name_server: DnsServer
) -> None:
    other = new_tenant()
    domains = [sign_in_domain(tenant, name_server)["domain"] for tenant in (home, other)]
    caller = ApiAt(host=domains[0])
    page = caller.get("/signin").content.decode()
    token = page.partition('name="form_token" value="')[2].partition('"')[0]
    browser = caller.client.cookies[cookie_name(BROWSER, home.id)].value
    caller.client.cookies[cookie_name(BROWSER, other.id)] = browser
    sent = {"raw": f"form_token={token}&email=a%40example.com&password=wrong".encode(), "content_type": FORM}
    assert caller.post("/signin", **sent).status_code == 400
    assert ApiAt(host=domains[1], client=caller.client).post("/signin", **sent).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example/signin",
        "/signin//evil.example",
        "/\\evil.example",
        "/signin?next=https://evil.example#x",
        "/%0d%0aX:1",
    ],
)
def test_former_domain_redirects_to_the_tenant_alone(home: TestTenant, name_server: DnsServer, path: str) -> None:
    row = sign_in_domain(home, name_server)
    set_sign_in(home, row, False)
    response = ApiAt(host=row["domain"]).get(path)
    assert response.status_code in (302, 404)
    if response.status_code == 302:
        assert f"/t/{home.slug}/" in response.headers["Location"].partition("?")[0]
