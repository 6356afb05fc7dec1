"""Two tenants with sign-in domains on one server in Chromium: pages, cookies, passkeys and issuers do not mix."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.common.virtual_authenticator import Protocol, Transport, VirtualAuthenticatorOptions

from tests.browsers import start_chromium
from tests.console.browser.place import RunningPlatform
from tests.console.browser.visitor import PASSWORD, Visitor

pytestmark = [pytest.mark.needs("chromium", "chromedriver"), pytest.mark.timeout(300)]
CREATE = """
from tenants.addresses import domain_claims
from tenants.models import Tenant
tenant = Tenant.objects.get(pk={tenant!r})
domain_claims.claim(tenant.pk, {domain!r}, "token")
domain_claims.set_sign_in(tenant.pk, {domain!r}, True)
"""


@dataclass
class Shop:
    """A tenant with a sign-in domain and a user."""

    tenant: dict[str, Any]
    domain: str
    origin: str
    email: str


@pytest.fixture(scope="module")
def shops(place: RunningPlatform) -> list[Shop]:
    """Two tenants; DNS is tested elsewhere."""
    made = []
    for name in ("Maple Books", "Oak Tools"):
        tenant, domain = place.new_tenant(name), f"login.{secrets.token_hex(4)}.example"
        place.manage("shell", "--no-imports", "-c", CREATE.format(tenant=tenant["tenant_id"], domain=domain))
        email = f"vera-{secrets.token_hex(3)}@example.com"
        named = {"tenant_id": tenant["tenant_id"], "client_id": tenant["client_id"]}
        body = {"email": email, "password": PASSWORD, "name": "Vera Visitor", **named}
        place.call("POST", "/uflow/user/clients/register", body)
        made.append(Shop(tenant, domain, f"http://{domain}:{place.running.port}", email))
    return made


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory, shops: list[Shop]) -> Iterator[webdriver.Chrome]:
    """A Chromium for which both domains are on this machine, and as good as https: the test server has no certificate."""
    driver = start_chromium(
        tmp_path_factory.mktemp("chromium"),
        "--host-resolver-rules=MAP *.example 127.0.0.1",
        f"--unsafely-treat-insecure-origin-as-secure={','.join(shop.origin for shop in shops)}",
    )
    driver.implicitly_wait(10)
    driver.add_virtual_authenticator(
        VirtualAuthenticatorOptions(
            protocol=Protocol.CTAP2,
            transport=Transport.INTERNAL,
            has_resident_key=True,
            has_user_verification=True,
            is_user_verified=True,
        )
    )
    yield driver
    driver.quit()


def sign_in(person: Visitor, shop: Shop) -> None:
    person.opens("/signin")
    person.fills("E-mail address", shop.email + Keys.ENTER)
    person.fills("Password", PASSWORD + Keys.ENTER)
    person.is_at("/account")


def names_of_cookies(browser: webdriver.Chrome) -> set[str]:
    return {cookie["name"] for cookie in browser.get_cookies()}


def test_two_domains_in_one_browser(mapped: webdriver.Chrome, shops: list[Shop]) -> None:
    first, second = (Visitor(mapped, shop.origin, "") for shop in shops)
    sign_in(first, shops[0])
    first.reads(shops[0].email)
    cookies = names_of_cookies(mapped)
    assert {cookie["domain"] for cookie in mapped.get_cookies()} == {shops[0].domain}
    # The other tenant's pages neither see the session nor the cookies.
    second.opens("/account")
    second.is_at("/signin")
    assert not cookies & names_of_cookies(mapped)
    sign_in(second, shops[1])
    second.reads(shops[1].email)
    first.opens("/account")
    first.reads(shops[0].email)
    # The user of one is unknown at the other.
    second.opens("/signout")
    second.presses("Sign out")
    second.reads("You are signed out.")
    second.opens("/signin")
    second.fills("E-mail address", shops[0].email + Keys.ENTER)
    second.fills("Password", PASSWORD + Keys.ENTER)
    second.reads("incorrect")
    first.opens("/account")
    first.reads(shops[0].email)


def test_passkeys_belong_to_one_domain(mapped: webdriver.Chrome, shops: list[Shop]) -> None:
    mapped.execute_cdp_cmd("Network.clearBrowserCookies", {})
    for shop in shops:
        person = Visitor(mapped, shop.origin, "")
        sign_in(person, shop)
        person.opens("/enroll/passkey")
        person.fills("Password", PASSWORD + Keys.ENTER)
        person.presses("Create a passkey")
        person.reads("Your passkey is ready.")
    assert {key.rp_id for key in mapped.get_credentials()} == {shop.domain for shop in shops}
    for shop in shops:
        person = Visitor(mapped, shop.origin, "")
        person.opens("/signout")
        person.presses("Sign out")
        # The virtual authenticator answers the request that waits in the field of the address at once.
        person.is_at("/account")
        person.reads(shop.email)


def test_pages_of_the_slug_lead_to_the_domain(
    mapped: webdriver.Chrome, place: RunningPlatform, shops: list[Shop]
) -> None:
    for shop in shops:
        mapped.get(f"{place.url}/t/{shop.tenant['slug']}/register")
        assert mapped.current_url == f"{shop.origin}/register"
        metadata = Request(f"{place.url}/.well-known/openid-configuration", headers={"Host": shop.domain})
        with urlopen(metadata, timeout=30) as response:
            assert json.load(response)["issuer"] == shop.origin
    mapped.get(f"{shops[0].origin}/admin/")
    assert "Sign in" not in mapped.page_source
