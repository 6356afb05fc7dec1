"""A domain that is not the sign-in domain any more, but still the tenant's: pages redirect, all else is 404."""

from collections.abc import Callable

import pytest

from tenants.addresses.hosts import budget, check_budget
from tenants.entering.lookup import find
from tenants.settings.page_addresses import origin_of
from tests.openid.relying_party import page_of, query_of
from tests.openid.sign_in_domains import (
    DOMAINS,
    ApiAt,
    ApplicationAt,
    set_sign_in,
    sign_in_domain,
    verified_domain,
)
from tests.openid.test_sign_in_domains import METADATA, app_at
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.world import Api, TestTenant, capture_statements

NewTenant = Callable[[], TestTenant]


@pytest.fixture(autouse=True)
def _no_unknown_hosts() -> None:
    budget.clear()
    check_budget.clear()


@pytest.fixture
def home(new_tenant: NewTenant, name_server: DnsServer) -> TestTenant:
    return new_tenant()


def location(host: str, path: str) -> str:
    response = ApiAt(host=host).get(path)
    assert response.status_code == 302, response.content
    return str(response.headers["Location"])


def test_pages_redirect_to_the_slug(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    assert set_sign_in(home, row, False).status_code == 200
    root = find(home.id).root
    assert root.endswith(f"/t/{home.slug}")
    for path in ("/signin?request=x", "/reset", "/account/security?x=1%2F2", "/logout"):
        assert location(row["domain"], path) == f"{root}{path}"
    for path in (METADATA, "/jwks", "/userinfo", "/admin/", f"/t/{home.slug}/signin"):
        assert ApiAt(host=row["domain"]).get(path).status_code == 404, path
    assert ApiAt(host=row["domain"]).post("/token", {}).status_code == 404
    assert Api().get("/t/domain-check", {"domain": row["domain"]}).status_code == 200


def test_pages_redirect_to_the_next_domain(home: TestTenant, name_server: DnsServer) -> None:
    first, second = sign_in_domain(home, name_server), verified_domain(home, name_server)
    set_sign_in(home, second, True)
    assert location(first["domain"], "/forgot") == f"{origin_of(second['domain'])}/forgot"
    # Never beyond the tenant's address.
    assert location(first["domain"], "/signin?next=//evil.example") == (
        f"{origin_of(second['domain'])}/signin?next=//evil.example"
    )
    set_sign_in(home, first, True)
    assert ApiAt(host=first["domain"]).get("/signin").status_code == 200
    assert location(second["domain"], "/signin") == f"{origin_of(first['domain'])}/signin"


def test_domain_that_was_never_used_is_unknown(home: TestTenant, name_server: DnsServer) -> None:
    row = verified_domain(home, name_server)
    assert ApiAt(host=row["domain"]).get("/signin").status_code == 400
    assert Api().get("/t/domain-check", {"domain": row["domain"]}).status_code == 404


def test_deleted_domain_is_unknown(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    set_sign_in(home, row, False)
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    assert ApiAt(host=row["domain"]).get("/signin").status_code == 400
    assert Api().get("/t/domain-check", {"domain": row["domain"]}).status_code == 404


def test_request_on_its_way_goes_on(home: TestTenant, name_server: DnsServer) -> None:
    first, second = sign_in_domain(home, name_server), verified_domain(home, name_server)
    app = app_at(home, first["domain"])
    user = home.register()
    page = page_of(app.authorize())
    form = ApiAt(host=first["domain"], client=app.browser.client).get(page)
    assert form.status_code == 200
    set_sign_in(home, second, True)
    # The page of the request says what to do; the form is not sent elsewhere.
    moved = location(first["domain"], page)
    assert moved == f"{origin_of(second['domain'])}{page}"
    expired = ApiAt(host=second["domain"]).get(page)
    assert (expired.status_code, "go back to the application" in expired.content.decode()) == (400, True)
    sent = app.browser.post(page, raw=b"email=a", content_type="application/x-www-form-urlencoded")
    assert (sent.status_code, "has moved to another address" in sent.content.decode()) == (404, True)
    # The application's next request ends at the new issuer.
    again = app.authorize()
    assert again.headers["Location"].startswith(f"{origin_of(second['domain'])}/authorize?")
    new = ApplicationAt(home, app.client, host=second["domain"], verifier=app.verifier)
    new.sign_in(user)
    assert query_of(new.authorize().headers["Location"])["iss"] == origin_of(second["domain"])


def test_redirect_reads_the_tenants_database_only(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    set_sign_in(home, row, False)
    location(row["domain"], "/signin")
    with capture_statements() as seen:
        location(row["domain"], "/signin")
    assert seen.counts == (0, 2)
