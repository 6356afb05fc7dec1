"""Browser sessions at a tenant's sign-in domain: every page that ends or replaces one finds it there too."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest

from openid.browser import SESSION, cookie_name
from tenants.addresses.hosts import budget, check_budget
from tenants.entering.context import in_tenant
from tests.mfa.people import new_user
from tests.openid.logout_receiver import LogoutReceiver
from tests.openid.logout_scene import deliver, listens
from tests.openid.pages.test_remembered_devices import carries, device_of, kept, remembered, sets
from tests.openid.pages.visitor import code_of
from tests.openid.relying_party import CALLBACK
from tests.openid.sign_in_domains import ApiAt, ApplicationAt, DeviceAt, VisitorAt, sign_in_domain
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.userflow.invitations.test_invitations import invite
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.passwords.test_reset import mails_to as reset_mails_to
from tests.userflow.passwords.test_reset import token_in as reset_token_in
from tests.world import PASSWORD, TestTenant, User
from userflow.accounts.grant_types import DEVICE_CODE, REFRESH_TOKEN
from userflow.accounts.session_models import EndUserSession

BACK = "https://app.example.com/bye"
NEW = "another horse 8 battery"


@pytest.fixture(autouse=True)
def _receivers_on_this_machine(settings: Any) -> None:
    settings.CLIENT_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.CLIENT_PLAIN_HTTP = True
    budget.clear()
    check_budget.clear()


@pytest.fixture
def receiver() -> Iterator[LogoutReceiver]:
    made = LogoutReceiver()
    yield made
    made.close()


@dataclass
class Home:
    """A tenant at its sign-in domain, a signed-in user, and an application that has tokens and gets logout tokens."""

    tenant: TestTenant
    visitor: VisitorAt
    user: User
    app: ApplicationAt
    tokens: dict[str, Any]
    receiver: LogoutReceiver

    @property
    def host(self) -> str:
        return self.visitor.host

    def userinfo(self) -> int:
        return int(ApiAt(host=self.host, token=self.tokens["access_token"]).get("/userinfo").status_code)

    def logout_tokens(self) -> int:
        deliver()
        return len(self.receiver.taken)

    def browser_sessions(self, user: User | None = None) -> int:
        with in_tenant(self.tenant.id):
            browsers = EndUserSession.objects.filter(browser_digest__isnull=False, ended_at=None)
            return browsers.filter(user_id=(user or self.user).id).count()

    def cookie_opens(self, cookie: str | None) -> bool:
        other = VisitorAt(self.tenant, host=self.host)
        other.client.cookies[cookie_name(SESSION, self.tenant.id)] = cookie or ""
        other.opens("account")
        return other.at == "account"

    def assert_signed_out(self, cookie: str | None) -> None:
        assert not self.cookie_opens(cookie)
        assert self.userinfo() == 401
        refreshed = self.app.token(grant_type="refresh_token", refresh_token=self.tokens["refresh_token"])
        assert (refreshed.status_code, refreshed.json()["error"]) == (400, "invalid_grant")
        assert self.logout_tokens() == 1


@pytest.fixture
def home(new_tenant: Callable[[], TestTenant], name_server: DnsServer, receiver: LogoutReceiver) -> Home:
    tenant = new_tenant()
    domain = sign_in_domain(tenant, name_server)["domain"]
    registered = listens(tenant, receiver, post_logout_redirect_uris=[BACK]).client
    visitor, user = VisitorAt(tenant, host=domain), tenant.register()
    app = ApplicationAt(tenant, registered, host=domain)
    visitor.signs_in(user)
    app.browser.client, app.browser.address = visitor.client, visitor.address
    return Home(tenant, visitor, user, app, app.tokens(), receiver)


def test_domain_logout_without_hint_ends_everything(home: Home) -> None:
    cookie = home.visitor.session
    sent = {"client_id": home.app.client["client_id"], "post_logout_redirect_uri": BACK, "state": "s"}
    home.visitor.opens(f"logout?{urlencode(sent)}")
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', home.visitor.text))
    response = home.visitor.sends("logout", follow=False, **fields)
    assert (response.status_code, response.headers["Location"]) == (303, f"{BACK}?state=s")
    home.assert_signed_out(cookie)


def test_domain_logout_with_hint_ends_everything(home: Home) -> None:
    cookie = home.visitor.session
    sent = {"id_token_hint": home.tokens["id_token"], "post_logout_redirect_uri": BACK}
    response = home.visitor.opens(f"logout?{urlencode(sent)}")
    assert (response.status_code, response.headers["Location"]) == (303, BACK)
    home.assert_signed_out(cookie)


def test_domain_logout_with_old_hint_ends_present_session(home: Home) -> None:
    # The application's session ended before: only the cookie leads to that of the browser.
    cookie = home.visitor.session
    with in_tenant(home.tenant.id):
        EndUserSession.objects.filter(user_id=home.user.id, client_id=home.app.client["client_id"]).delete()
    home.visitor.opens(f"logout?{urlencode({'id_token_hint': home.tokens['id_token']})}")
    assert not home.cookie_opens(cookie)


def test_domain_sign_out_page_ends_everything(home: Home) -> None:
    cookie = home.visitor.session
    home.visitor.opens("signout")
    home.visitor.sends()
    home.assert_signed_out(cookie)


def test_domain_sign_in_of_another_user_ends_session(home: Home) -> None:
    cookie, other = home.visitor.session, home.tenant.register()
    home.visitor.signs_in(other, "signin?another=1")
    assert home.visitor.at == "account"
    assert home.browser_sessions(other) == 1
    home.assert_signed_out(cookie)


def signs_in_again(home: Home, user: User) -> str:
    """Sign in where the application asks for it; return its code."""
    home.visitor.page = home.app.authorize(prompt="login")
    home.visitor._follow()
    assert home.visitor.at == "signin", home.visitor.text
    return code_of(home.visitor.sends(email=user.email, password=user.password))


def test_domain_prompt_login_replaces_session(home: Home) -> None:
    cookie = home.visitor.session
    waiting = home.app.code()
    fresh = signs_in_again(home, home.user)
    assert home.browser_sessions() == 1
    assert not home.cookie_opens(cookie)
    assert home.visitor.session != cookie
    # The applications move to the new session, with the codes that they have not exchanged yet.
    assert home.userinfo() == 200
    assert [home.app.exchange(code).status_code for code in (waiting, fresh)] == [200, 200]
    with in_tenant(home.tenant.id):
        browser = EndUserSession.objects.get(user_id=home.user.id, browser_digest__isnull=False, ended_at=None)
        children = EndUserSession.objects.filter(client_id=home.app.client["client_id"], ended_at=None)
        assert set(children.values_list("parent_id", flat=True)) == {browser.pk}
    assert home.logout_tokens() == 0


def resets(home: Home, user: User) -> None:
    home.visitor.opens("forgot")
    home.visitor.sends(email=user.email)
    (sent,) = reset_mails_to(user.email)
    home.visitor.opens("reset")
    home.visitor.sends(token=reset_token_in(sent), password=NEW)
    assert home.visitor.at == "signin/password"


def test_domain_reset_of_another_user_keeps_session(home: Home) -> None:
    cookie = home.visitor.session
    resets(home, home.tenant.register())
    assert home.visitor.session == cookie
    home.visitor.opens("account")
    assert home.visitor.at == "account"
    assert home.userinfo() == 200


def test_domain_sign_in_after_reset_replaces_session(home: Home) -> None:
    cookie, other = home.visitor.session, home.tenant.register()
    resets(home, other)
    home.visitor.sends(password=NEW)
    assert home.visitor.at == "account"
    assert home.browser_sessions(other) == 1
    home.assert_signed_out(cookie)


def test_domain_reset_of_own_password_ends_session(home: Home) -> None:
    cookie = home.visitor.session
    resets(home, home.user)
    assert home.visitor.session is None
    home.assert_signed_out(cookie)


def test_domain_invitation_replaces_session(home: Home) -> None:
    cookie = home.visitor.session
    (sent,) = mails_to(invite(home.tenant, "end_user")["email"], "invited")
    home.visitor.opens("invitation")
    home.visitor.sends(token=token_in(sent), name="Ina", password=PASSWORD)
    assert "Ina" in home.visitor.text
    home.assert_signed_out(cookie)


def waiting_device(home: Home) -> DeviceAt:
    """Return a device that the user has approved and that has not polled since."""
    fields = {"name": "Television", "grant_types": [DEVICE_CODE, REFRESH_TOKEN], "redirect_uris": [CALLBACK]}
    client = listens(home.tenant, None, **fields).client
    device = DeviceAt(home.tenant, client, host=home.host)
    device.starts(scope="openid")
    device.approved_by(home.visitor)
    return device


def test_domain_sign_in_again_keeps_device_approval(home: Home) -> None:
    device = waiting_device(home)
    signs_in_again(home, home.user)
    assert device.polls().status_code == 200


def test_domain_sign_in_of_another_user_ends_approval(home: Home) -> None:
    device = waiting_device(home)
    signs_in_again(home, home.tenant.register())
    assert device.error == "access_denied"


def test_domain_logout_ends_device_approval(home: Home) -> None:
    device = waiting_device(home)
    home.visitor.opens("logout")
    home.visitor.sends()
    assert device.error == "access_denied"


def test_domain_device_is_remembered_and_found_again(home: Home) -> None:
    sets(home.tenant, remember_device_days=30)
    person = new_user(home.tenant).enrol_totp()
    visitor = remembered(person, VisitorAt(home.tenant, host=home.host))
    # The next sign-in ends the session before it, finds the device and replaces its cookie.
    first, cookie = device_of(visitor), visitor.session
    visitor.opens("signin?another=1")
    visitor.sends(email=person.email, password=PASSWORD)
    assert visitor.at == "account"
    assert device_of(visitor) not in ("", first)
    assert len(kept(person)) == 1
    assert not home.cookie_opens(cookie)
    carries(visitor, first)
    visitor.opens("signin?another=1")
    visitor.sends(email=person.email, password=PASSWORD)
    assert visitor.at == "signin/verify"


def test_domain_step_up_rotates_cookie(home: Home) -> None:
    cookie = home.visitor.session
    home.visitor.opens("step-up?method=password&next=security")
    home.visitor.sends(password=PASSWORD)
    assert home.visitor.session not in (None, cookie)
    assert not home.cookie_opens(cookie)
    assert home.cookie_opens(home.visitor.session)
    assert home.browser_sessions() == 1
