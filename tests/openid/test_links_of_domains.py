"""Links of mails and cookies that lead to a sign-in domain: they work while the tenant has it, and end with it."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils.timezone import now

from tenants.addresses.domain_claims import GRACE
from tenants.addresses.hosts import budget, check_budget
from tenants.entering.context import in_tenant
from tenants.models import DomainClaim
from tenants.settings.page_addresses import origin_of
from tests.openid.application_sessions import cookie_of
from tests.openid.sign_in_domains import DOMAINS, ApiAt, set_sign_in, sign_in_domain, verified_domain
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.userflow.mailbox import code_in, mails_to, token_in
from tests.world import Api, TestTenant, User
from userflow.domains.actions import check_domains
from userflow.sessions.browser import find_browser_session

NewTenant = Callable[[], TestTenant]
NEW = "a new password for this test"


@pytest.fixture(autouse=True)
def _no_unknown_hosts() -> None:
    budget.clear()
    check_budget.clear()


@pytest.fixture
def home(new_tenant: NewTenant, name_server: DnsServer) -> TestTenant:
    return new_tenant()


def reset_link(tenant: TestTenant, user: User) -> str:
    body = {"client_id": str(tenant.client_id), "email": user.email}
    assert Api().post("/uflow/auth/enduser/password/forgot", body).status_code == 200
    found = [re.search(r"https?://\S+/reset#\S+", sent.body) for sent in mails_to(user.email)]
    return [link[0] for link in found if link][-1]


def resets(link: str) -> bool:
    body = {"token": link.partition("token=")[2], "password": NEW}
    return bool(Api().post("/uflow/auth/enduser/password/reset", body).status_code == 200)


def withdraw(tenant: TestTenant, name_server: DnsServer) -> None:
    with in_tenant(tenant.id):
        DomainClaim.objects.filter(tenant_id=tenant.id).update(lost_since=now() - GRACE - timedelta(minutes=1))
    name_server.records.clear()
    check_domains(tenant_id=tenant.id)


def knows(tenant: TestTenant, cookie: str) -> bool:
    with in_tenant(tenant.id):
        return find_browser_session(cookie) is not None


def test_reset_link_works_from_a_former_domain(home: TestTenant, name_server: DnsServer) -> None:
    row, user = sign_in_domain(home, name_server), home.register()
    link = reset_link(home, user)
    assert link.startswith(f"{origin_of(row['domain'])}/reset#")
    set_sign_in(home, row, False)
    # Browsers keep the part after # over the redirect.
    assert ApiAt(host=row["domain"]).get("/reset").headers["Location"].endswith(f"/t/{home.slug}/reset")
    assert resets(link)


@pytest.mark.parametrize("former", [False, True])
@pytest.mark.parametrize("how", ["deleted", "withdrawn"])
def test_reset_link_ends_with_the_domain(home: TestTenant, name_server: DnsServer, how: str, former: bool) -> None:
    row, user = sign_in_domain(home, name_server), home.register()
    link = reset_link(home, user)
    if former:
        set_sign_in(home, row, False)
    if how == "deleted":
        assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    else:
        withdraw(home, name_server)
    assert not resets(link)
    assert resets(reset_link(home, user))


def test_verification_link_ends_and_its_code_works(home: TestTenant, name_server: DnsServer) -> None:
    row, user = sign_in_domain(home, name_server), home.register()
    sent = mails_to(user.email)[-1]
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    assert Api().post("/uflow/user/email/verify", {"token": token_in(sent)}).status_code == 400
    by_code = {"tenant_id": str(home.id), "email": user.email, "code": code_in(sent)}
    verified = Api().post("/uflow/user/email/verify", by_code)
    assert verified.status_code == 200, verified.content


def test_invitation_ends_and_can_be_sent_again(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    made = home.api.post("/uflow/admin/invitations", {"email": "guest@links.example", "kind": "end_user"}).json()
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200

    def accept() -> int:
        token = token_in(mails_to("guest@links.example")[-1])
        return int(Api().post("/uflow/invitations/accept", {"token": token, "password": NEW}).status_code)

    assert accept() == 400
    assert home.api.post(f"/uflow/admin/invitations/{made['id']}/resend", {}).status_code == 200
    assert accept() == 201


def test_unused_domain_ends_no_links(home: TestTenant, name_server: DnsServer) -> None:
    row, user = verified_domain(home, name_server), home.register()
    link = reset_link(home, user)
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    assert resets(link)


def test_cookie_returns_with_its_domain(home: TestTenant, name_server: DnsServer) -> None:
    row, user = sign_in_domain(home, name_server), home.register()
    cookie = cookie_of(home, user.email, user.password)
    set_sign_in(home, row, False)
    assert not knows(home, cookie)
    set_sign_in(home, row, True)
    assert knows(home, cookie)


def test_cookie_of_a_domain_that_was_given_up_stays_dead(home: TestTenant, name_server: DnsServer) -> None:
    row, user = sign_in_domain(home, name_server), home.register()
    cookie = cookie_of(home, user.email, user.password)
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    # Meanwhile the domain may have had another owner, whom browsers sent the cookie.
    sign_in_domain(home, name_server, row["domain"])
    assert not knows(home, cookie)
    assert knows(home, cookie_of(home, user.email, user.password))
