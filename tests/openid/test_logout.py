"""Logout that an application asks for: with a hint at once, without one only after the user was asked."""

import re
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from openid.browser import SESSION, cookie_name
from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.openid.application_sessions import open_application, session_of, sign_in
from tests.openid.test_application_tokens import id_token, logout_token
from tests.userflow.sessions.clients import FORM
from tests.world import Api, TestTenant
from userflow.accounts.session_models import EndUserSession

BACK = "https://app.example.com/bye"


class Browser:
    """A browser that is signed in, with one application."""

    def __init__(self, tenant: TestTenant) -> None:
        self.tenant, self.api = tenant, Api()
        change_client(tenant.client_id, post_logout_redirect_uris=[BACK, "com.example.app:/bye"])
        self.email = tenant.register().email
        cookie, _ = sign_in(tenant, self.email)
        self.session = session_of(tenant, cookie)
        self.api.client.cookies[cookie_name(SESSION, tenant.id)] = cookie or ""
        self.child = open_application(tenant, self.session).session
        self.hint = id_token(tenant, self.child)

    @property
    def path(self) -> str:
        return f"/t/{self.tenant.slug}/logout"

    def logout(self, **query: str) -> Any:
        return self.api.get(f"{self.path}?{urlencode(query)}")

    def post(self, **sent: str) -> Any:
        return self.api.post(self.path, raw=urlencode(sent).encode(), content_type=FORM)

    def is_signed_in(self) -> bool:
        with in_tenant(self.tenant.id):
            active = EndUserSession.objects.filter(pk__in=[self.session.pk, self.child.pk], ended_at=None).count()
        assert active in (0, 2)
        return active == 2


@pytest.fixture
def own(tenant: TestTenant) -> Browser:
    return Browser(tenant)


def test_logout_with_hint_returns_to_application(own: Browser) -> None:
    response = own.logout(id_token_hint=own.hint, post_logout_redirect_uri=BACK, state="a b&c")
    assert (response.status_code, response.headers["Location"]) == (303, f"{BACK}?state=a+b%26c")
    assert not own.is_signed_in()
    assert response.cookies[cookie_name(SESSION, own.tenant.id)].value == ""


def test_logout_with_hint_by_form_of_application(own: Browser) -> None:
    response = own.post(id_token_hint=own.hint, post_logout_redirect_uri="com.example.app:/bye")
    assert (response.status_code, response.headers["Location"]) == (303, "com.example.app:/bye")
    assert not own.is_signed_in()


def test_logout_without_hint_asks_first(own: Browser) -> None:
    client_id = str(own.tenant.client_id)
    page = own.logout(client_id=client_id, post_logout_redirect_uri=BACK, state="s")
    assert page.status_code == 200
    assert own.is_signed_in()
    assert "https://app.example.com" in page.headers["Content-Security-Policy"]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.content.decode()))
    assert own.post(**{**fields, "form_token": "0" * 64}).status_code == 403
    assert own.is_signed_in()
    response = own.post(**fields)
    assert (response.status_code, response.headers["Location"]) == (303, f"{BACK}?state=s")
    assert not own.is_signed_in()


def test_cross_site_form_without_hint_ends_nothing(own: Browser) -> None:
    assert own.post(client_id=str(own.tenant.client_id)).status_code == 200
    assert own.is_signed_in()


@pytest.mark.parametrize(
    "address", ["https://attacker.example.com/", f"{BACK}/more", f"{BACK}?x=1", "javascript:alert(1)", ""]
)
def test_logout_never_redirects_to_unregistered_address(address: str, own: Browser) -> None:
    response = own.logout(id_token_hint=own.hint, post_logout_redirect_uri=address)
    if address:
        assert response.status_code == 400
        assert own.is_signed_in()
    else:
        assert urlsplit(response.headers["Location"]).path == f"/t/{own.tenant.slug}/signin"


def test_logout_rejects_redirect_without_client(own: Browser) -> None:
    assert own.logout(post_logout_redirect_uri=BACK).status_code == 400
    assert own.is_signed_in()


def test_logout_rejects_wrong_hints(own: Browser, other_tenant: TestTenant) -> None:
    foreign = Browser(other_tenant)
    for hint in (
        foreign.hint,
        logout_token(own.tenant, own.child),
        str(own.tenant.api.token),
        "x",
        own.hint[:-4] + "AAAA",
    ):
        assert own.logout(id_token_hint=hint, post_logout_redirect_uri=BACK).status_code == 400
    assert own.logout(id_token_hint=own.hint, client_id=str(foreign.tenant.client_id)).status_code == 400
    assert own.is_signed_in()
    assert foreign.is_signed_in()


def test_hint_about_another_user_asks_first(own: Browser) -> None:
    other = Browser(own.tenant)
    assert own.logout(id_token_hint=other.hint).status_code == 200
    assert own.is_signed_in()
    assert other.is_signed_in()


def test_logout_of_ended_session_returns_to_application(own: Browser) -> None:
    own.logout(id_token_hint=own.hint)
    response = own.logout(id_token_hint=own.hint, post_logout_redirect_uri=BACK)
    assert response.headers["Location"] == BACK


def test_repeated_parameter_is_rejected(own: Browser) -> None:
    assert own.api.get(f"{own.path}?client_id=a&client_id=b").status_code == 400


def test_cross_site_form_without_hint_goes_on_with_cookies(own: Browser) -> None:
    # Browsers send Lax cookies with a link from another site, but not with a form.
    held = own.api.client.cookies.pop(cookie_name(SESSION, own.tenant.id))
    sent = {"client_id": str(own.tenant.client_id), "post_logout_redirect_uri": BACK, "state": "a b&c"}
    response = own.post(**sent)
    assert (response.status_code, response.headers["Location"]) == (303, f"{own.path}?{urlencode(sent)}")
    assert not response.cookies
    own.api.client.cookies[cookie_name(SESSION, own.tenant.id)] = held.value
    page = own.api.get(response.headers["Location"])
    assert page.status_code == 200
    assert 'name="form_token"' in page.content.decode()
    assert own.is_signed_in()


def test_cross_site_form_with_hint_goes_on_with_cookies(own: Browser) -> None:
    held = own.api.client.cookies.pop(cookie_name(SESSION, own.tenant.id))
    sent = {"id_token_hint": own.hint, "post_logout_redirect_uri": BACK}
    response = own.post(**sent)
    assert (response.status_code, response.headers["Location"]) == (303, f"{own.path}?{urlencode(sent)}")
    assert own.is_signed_in()
    own.api.client.cookies[cookie_name(SESSION, own.tenant.id)] = held.value
    assert own.api.get(response.headers["Location"]).headers["Location"] == BACK
    assert not own.is_signed_in()


def test_hint_without_the_cookie_ends_its_application_only(own: Browser) -> None:
    other = open_application(own.tenant, own.session).session
    held = own.api.client.cookies.pop(cookie_name(SESSION, own.tenant.id))
    response = own.logout(id_token_hint=own.hint, post_logout_redirect_uri=BACK)
    assert (response.status_code, response.headers["Location"]) == (303, BACK)
    with in_tenant(own.tenant.id):
        sessions = EndUserSession.objects.filter(pk__in=[own.session.pk, own.child.pk, other.pk], ended_at=None)
        assert {session.pk for session in sessions} == {own.session.pk, other.pk}
    own.api.client.cookies[cookie_name(SESSION, own.tenant.id)] = held.value
    own.logout(id_token_hint=own.hint)
    with in_tenant(own.tenant.id):
        assert not sessions.all().exists()


def test_hint_of_another_browser_leaves_that_browser_signed_in(own: Browser) -> None:
    cookie, _ = sign_in(own.tenant, own.email)
    elsewhere = session_of(own.tenant, cookie)
    hint = id_token(own.tenant, open_application(own.tenant, elsewhere).session)
    own.logout(id_token_hint=hint)
    assert not own.is_signed_in()
    with in_tenant(own.tenant.id):
        assert EndUserSession.objects.filter(pk=elsewhere.pk, ended_at=None).exists()


def test_cross_site_form_is_checked_before_it_goes_on(own: Browser) -> None:
    own.api.client.cookies.clear()
    assert own.post(post_logout_redirect_uri="https://attacker.example.com/").status_code == 400
    response = own.post(unknown="x")
    assert response.headers["Location"] == own.path
