"""Attacks on the hosted pages: forged forms, foreign cookies and handles, frames, open redirects."""

import re
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings
from django.utils.timezone import now

from openid.browser import BROWSER, SESSION, STEPS, cookie_name
from openid.pages.forms import PasswordForm
from openid.pages.journey import source_of
from tenants.entering.context import in_tenant, tenant_atomic
from tests.copies import change_mapping, change_tenant
from tests.mfa.people import new_user
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.userflow.sessions.clients import FORM
from tests.world import PASSWORD, CapturedStatements, TestTenant, capture_statements
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import EndUserSession
from userflow.sessions.browser import open_child_session


def policy(visitor: Visitor) -> dict[str, str]:
    text = visitor.page.headers["Content-Security-Policy"]
    return dict(part.strip().split(" ", 1) for part in text.split(";"))


def test_every_page_keeps_frames_scripts_and_caches_out(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    for path in ("signin", "register", "forgot", "reset", "verify-email", "invitation", "consent", "/t/none/signin"):
        visitor.opens(path)
        headers, rules = visitor.page.headers, policy(visitor)
        assert rules["default-src"] == "'none'"
        assert rules["frame-ancestors"] == "'none'"
        assert rules["base-uri"] == "'none'"
        assert rules["form-action"] == "'self'"
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"


def test_nonce_is_new_for_every_response(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    rules = []
    for _ in range(2):
        visitor.opens("signin")
        rules.append(policy(visitor)["script-src"])
        assert rules[-1].removeprefix("'nonce-").removesuffix("'") in visitor.text
    assert rules[0] != rules[1]


def test_form_may_lead_to_the_application_only(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    begin(visitor)
    assert policy(visitor)["form-action"] == "'self' https://app.example.com"


def test_login_csrf_is_rejected(tenant: TestTenant) -> None:
    attacker, victim, user = Visitor(tenant), Visitor(tenant), tenant.register()
    attacker.opens("signin")
    victim.opens("signin")
    # The attacker's own form, sent by the victim's browser.
    victim.page = attacker.page
    victim.sends(email=user.email, password=PASSWORD)
    assert victim.page.status_code == 403
    assert victim.session is None
    assert "Open it again." in victim.words


def test_form_of_another_site_is_rejected(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin")
    visitor.client.defaults["HTTP_SEC_FETCH_SITE"] = "cross-site"
    visitor.sends(email="a@example.com", password=PASSWORD)
    assert visitor.page.status_code == 403


def test_form_without_cookies_is_rejected(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin")
    visitor.client.cookies.clear()
    visitor.sends(email="a@example.com", password=PASSWORD)
    assert visitor.page.status_code == 403


def test_form_from_before_sign_in_is_rejected_after_it(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    visitor.opens("signin")
    before = visitor.page
    visitor.signs_in(user)
    visitor.page = before
    assert visitor.sends(email="a@example.com", password=PASSWORD).status_code == 403


def test_session_cookie_is_new_at_every_sign_in(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    fixed = "A" * 43
    visitor.client.cookies[cookie_name(SESSION, tenant.id)] = fixed
    visitor.signs_in(user)
    first = visitor.session
    assert first not in (None, fixed)
    visitor.opens("signin?another=1")
    visitor.sends(email=user.email, password=PASSWORD)
    assert visitor.session not in (None, first)
    # The earlier session has ended.
    other = Visitor(tenant)
    other.client.cookies[cookie_name(SESSION, tenant.id)] = first or ""
    other.opens("account")
    assert other.at == "signin"


def kind_of_journey(visitor: Visitor) -> str:
    """Return the kind of the cookie with the steps of the only journey."""
    [name] = [name for name, morsel in visitor.client.cookies.items() if f"{STEPS}." in name and morsel.value]
    return name[name.index(STEPS) :].partition("-")[0]


def test_cookies_of_another_tenant_mean_nothing(tenant: TestTenant, other_tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), new_user(tenant).enrol_totp()
    visitor.opens("signin")
    visitor.sends(email=user.email, password=PASSWORD)
    kind_of_steps = kind_of_journey(visitor)
    steps = visitor.client.cookies[cookie_name(kind_of_steps, tenant.id)].value
    visitor.sends(code=user.code(1))
    elsewhere = Visitor(other_tenant)
    for kind, value in ((SESSION, visitor.session or ""), (kind_of_steps, steps), (STEPS, steps)):
        elsewhere.client.cookies[cookie_name(kind, other_tenant.id)] = value
    elsewhere.opens("account")
    assert elsewhere.at == "signin"
    for page in ("signin/password", "signin/verify"):
        elsewhere.opens(page)
        assert elsewhere.at == "signin"


def test_handle_of_another_browser_is_rejected(tenant: TestTenant) -> None:
    attacker, victim, user = Visitor(tenant), Visitor(tenant), tenant.register()
    begin(attacker)
    query = attacker.query
    victim.signs_in(user)
    for path in ("signin", "continue", "consent", "select-account"):
        victim.opens(f"{path}?{query}")
        assert victim.page.status_code == 400, path
        assert "Location" not in victim.page.headers


TENANT_AND_CLIENT = {"tenants_tenantrecord", "userflow_tenantclient"}


def read_tables(statements: CapturedStatements) -> set[str]:
    return set(re.findall(r"(?:FROM|JOIN|INTO|UPDATE) \"?(\w+)", " ".join(statements.tenant)))


def test_page_over_a_limit_reads_the_tenant_and_its_client_only(tenant: TestTenant, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, **dict.fromkeys(("signin", "registration", "authorization"), (1, 60))}
    visitor = Visitor(tenant)
    app = begin(visitor)
    visitor.opens("signin?another=1")
    visitor.sends(email="a@example.com", password=PASSWORD)
    assert visitor.page.status_code == 400
    visitor.sends("register", email=f"{secrets.token_hex(6)}@example.com", password="short")
    sent = {"email": f"{secrets.token_hex(6)}@example.com", "password": "another horse 8 battery"}
    for path, fields in (("signin", sent), ("register", sent)):
        visitor.opens(path)
        with capture_statements() as statements:
            visitor.sends(path, **fields)
        assert (visitor.page.status_code, read_tables(statements)) == (429, TENANT_AND_CLIENT), path
        assert "Too many attempts. Wait 1 minute" in visitor.words
        assert int(visitor.page.headers["Retry-After"]) > 0
    with capture_statements() as statements:
        page = app.authorize()
    assert (page.status_code, read_tables(statements)) == (429, TENANT_AND_CLIENT)


def test_no_parameter_redirects_elsewhere(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    visitor.signs_in(user)
    for query in ("next=https://evil.example.com", "next=//evil.example.com", "redirect_uri=https://evil.example.com"):
        visitor.opens(f"step-up?{query}")
        visitor.sends(password=PASSWORD)
        assert visitor.at == "account"


def test_cookies_are_host_only_secure_and_unreadable(tenant: TestTenant) -> None:
    with override_settings(COOKIE_PREFIX="__Host-", SESSION_COOKIE_SECURE=True):
        visitor, waiting = Visitor(tenant), new_user(tenant).enrol_totp()
        visitor.signs_in(tenant.register())
        visitor.sends(name="A name")
        visitor.opens("signin?another=1")
        visitor.sends(email=waiting.email, password=PASSWORD)
        for kind in (SESSION, BROWSER, kind_of_journey(visitor)):
            name = cookie_name(kind, tenant.id)
            assert name.startswith("__Host-")
            morsel = visitor.client.cookies[name]
            assert (morsel["secure"], morsel["httponly"], morsel["path"], morsel["domain"]) == (True, True, "/", "")
            assert morsel["samesite"] == "Lax"


def test_code_needs_the_browser_of_the_request(tenant: TestTenant) -> None:
    first, second, user = Visitor(tenant), Visitor(tenant), tenant.register()
    begin(first)
    query = first.query
    second.signs_in(user)
    assert second.opens(f"continue?{query}").status_code == 400
    assert code_of(first.sends(email=user.email, password=PASSWORD))


def test_unknown_and_suspended_tenants_say_so(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    visitor = Visitor(tenant)
    visitor.opens("/t/not-there/signin")
    assert visitor.page.status_code == 404
    assert "There is no sign-in page at this address." in visitor.words
    change_mapping(tenant.id, status="suspended")
    visitor.opens("signin")
    assert visitor.page.status_code == 403
    assert "Signing in is paused here" in visitor.words


def test_unsupported_methods_are_405(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    for method, path, allowed in (
        ("PUT", "signin", "GET, HEAD, POST"),
        ("HEAD", "passkey-options", "POST"),
        ("HEAD", "continue", "GET"),
    ):
        response = visitor.client.generic(method, f"{visitor.root}/{path}", REMOTE_ADDR=visitor.address)
        assert (response.status_code, response.headers["Allow"]) == (405, allowed)
    assert visitor.client.head(f"{visitor.root}/signin").status_code == 200


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("https://app.example.com/cb", "https://app.example.com"),
        ("https://app.example.com:8443/cb", "https://app.example.com:8443"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:*"),
        ("http://[::1]:8080/cb", "http:"),
        ("com.example.app:/cb", "com.example.app:"),
        ("https://a;script-src/cb", ""),
        ("", ""),
    ],
)
def test_source_of_redirect_uri(uri: str, source: str) -> None:
    assert source_of(uri) == source


@pytest.mark.parametrize("path", ["signin", "reset", "verify-email", "invitation", "authorize", "logout", "account"])
@pytest.mark.parametrize("slug", ["no-such-tenant", "a%00b", "%ff", "%20", "a" * 80])
def test_pages_of_unknown_tenant_are_404(slug: str, path: str, tenant: TestTenant) -> None:
    assert Visitor(tenant).opens(f"/t/{slug}/{path}").status_code == 404


@pytest.mark.parametrize("path", ["jwks", ".well-known/openid-configuration", "userinfo"])
def test_endpoints_below_slug_with_nul_are_404(path: str, tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    assert visitor.opens(f"/t/a%00b/{path}").status_code == 404
    assert visitor.opens(f"/t/a%00b/{path}", origin="https://app.example.com").status_code == 404


@pytest.mark.parametrize("charset", ["hex", "none", "utf-16"])
@pytest.mark.parametrize("path", ["signin", "logout", "authorize", "/t/none/signin"])
def test_charset_of_request_is_no_fault(path: str, charset: str, tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    whole = path if path.startswith("/") else f"{visitor.root}/{path}"
    for kind in ("x/y", "application/x-www-form-urlencoded"):
        page = visitor.client.generic("POST", whole, b"a=b", f"{kind}; charset={charset}", REMOTE_ADDR=visitor.address)
        assert page.status_code in (303, 400, 403, 404)


def test_password_with_surrogate_is_rejected_at_its_form(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    visitor.opens("signin")
    token = re.search(r'name="form_token" value="([^"]+)"', visitor.text)
    assert token
    # The characters of this encoding include surrogates, which UTF-8 lacks.
    body = f"form_token={token[1]}&email={user.email}&password=+2AA-".encode()
    kind = f"{FORM}; charset=utf-7"
    path = f"{visitor.root}/signin"
    page = visitor.client.generic("POST", path, body, kind, REMOTE_ADDR=visitor.address)
    assert page.status_code in (400, 401)
    assert not PasswordForm({"password": "\ud800"}).is_valid()


def unfit_session(tenant: TestTenant, visitor: Visitor) -> EndUserSession:
    """Return the visitor's session, which from now on fails the tenant's policy."""
    user = tenant.register()
    visitor.signs_in(user)
    with in_tenant(tenant.id):
        session = EndUserSession.objects.get(user_id=user.id, ended_at=None)
    change_tenant(tenant.id, settings={"mfa_policy": "required"})
    visitor.opens("account")
    assert visitor.at == "signin"
    return session


def test_sign_in_ends_earlier_session_of_inactive_user(tenant: TestTenant) -> None:
    visitor, user, other = Visitor(tenant), tenant.register(), tenant.register()
    visitor.signs_in(user)
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=user.id).update(active=False)
    visitor.signs_in(other)
    assert visitor.session is not None
    with in_tenant(tenant.id):
        assert not EndUserSession.objects.filter(user_id=user.id, ended_at=None).exists()


@pytest.mark.parametrize("expired", [False, True])
def test_sign_in_keeps_applications_of_active_sessions_only(expired: bool, tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    visitor.signs_in(user)
    with in_tenant(tenant.id), tenant_atomic():
        browsers = EndUserSession.objects.filter(user_id=user.id, parent=None)
        opened = open_child_session(
            browsers.get(), client_id=tenant.client_id, scopes=("openid",), audiences=(), offline=True
        )
        if expired:
            browsers.update(expires_at=now())
    visitor.opens("signin?another=1")
    visitor.sends(email=user.email, password=PASSWORD)
    with in_tenant(tenant.id):
        child = EndUserSession.objects.get(pk=opened.session.pk)
        assert (child.ended_at is not None) == expired


def test_logout_ends_session_that_fails_policy(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    visitor = Visitor(tenant)
    session = unfit_session(tenant, visitor)
    visitor.opens("logout")
    assert visitor.session is None
    with in_tenant(tenant.id):
        assert EndUserSession.objects.get(pk=session.pk).ended_at is not None
