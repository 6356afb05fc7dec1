"""/.well-known/change-password (W3C) of the platform, of tenants and of sign-in domains."""

from collections.abc import Callable

import pytest
from django.test import Client

from tests.openid.pages.visitor import Visitor
from tests.openid.sign_in_domains import ApiAt, sign_in_domain
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.world import Api, TestTenant

PATH = "/.well-known/change-password"
# What password managers ask for too: an address that does not exist must not be 200 (section 4 of the specification).
NOWHERE = "/.well-known/resource-that-should-not-exist-whose-status-code-should-not-be-200"


def test_platform_redirects_to_the_console(client: Client) -> None:
    response = client.get(PATH)
    assert (response.status_code, response.headers["Location"]) == (302, "/admin/password_change/")
    assert client.post(PATH).status_code == 405
    assert client.get(NOWHERE).status_code == 404


def test_tenant_redirects_to_the_page_of_its_users(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    response = visitor.client.get(f"{visitor.root}{PATH}")
    assert (response.status_code, response.headers["Location"]) == (303, f"{visitor.root}/account/password")
    visitor.signs_in(tenant.register())
    visitor.opens(PATH.removeprefix("/"))
    # A session alone proves nothing: the page asks for the present password first.
    assert visitor.at == "step-up"
    assert visitor.client.get(f"{visitor.root}{NOWHERE}").status_code == 404


def test_unknown_tenant_is_404(client: Client) -> None:
    assert client.get(f"/t/no-such-tenant{PATH}").status_code == 404


@pytest.mark.parametrize("is_former", [False, True])
def test_sign_in_domain_has_its_own(
    new_tenant: Callable[[], TestTenant], name_server: DnsServer, is_former: bool
) -> None:
    tenant = new_tenant()
    domain = sign_in_domain(tenant, name_server)["domain"]
    if is_former:
        response = Api().get(f"/t/{tenant.slug}{PATH}")
        assert response.status_code == 302
        assert response.headers["Location"].partition("://")[2].startswith(domain)
    else:
        response = ApiAt(host=domain).get(PATH)
        assert (response.status_code, response.headers["Location"]) == (303, "/account/password")
