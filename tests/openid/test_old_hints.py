"""ID tokens as hints after their key has retired, or from before the tenant's issuer changed."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
from django.utils.timezone import now

from openid.browser import SESSION, cookie_name
from tenants.addresses.hosts import budget, check_budget
from tenants.entering.context import in_tenant
from tests.openid.relying_party import CALLBACK, Application, page_of, query_of, register_application
from tests.openid.sign_in_domains import DOMAINS, ApplicationAt, sign_in_domain
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.world import TestTenant, User
from userflow.accounts.session_models import EndUserSession
from userflow.sessions import signing
from userflow.sessions.models import TenantSigningKey

BACK = "https://app.example.com/bye"
NewTenant = Callable[[], TestTenant]


def expired(tenant: TestTenant, kid: str) -> None:
    """Rotate the key and let its time pass."""
    signing.rotate_signing_keys(tenant.id, at_once=True)
    with in_tenant(tenant.id):
        TenantSigningKey.objects.filter(pk=kid).update(verifies_until=now() - timedelta(seconds=1))
    signing.forget(tenant.id)


def purged(tenant: TestTenant, kid: str) -> None:
    """Rotate the key, and delete it as the clean-up does."""
    expired(tenant, kid)
    with in_tenant(tenant.id):
        TenantSigningKey.objects.filter(pk=kid).delete()


def withdrawn(tenant: TestTenant, kid: str) -> None:
    """Withdraw a key that has leaked."""
    assert signing.withdraw_signing_key(tenant.id, kid=kid)


ENDS = [expired, purged, withdrawn]


@pytest.fixture
def user(home: TestTenant) -> User:
    return home.register()


@pytest.fixture
def home(new_tenant: NewTenant) -> TestTenant:
    return new_tenant()


@pytest.fixture
def app(home: TestTenant, user: User) -> Application:
    registered = register_application(home, first_party=True, post_logout_redirect_uris=[BACK])
    made = Application(home, registered)
    made.sign_in(user)
    return made


def old_hint(app: Application, end: Callable[[TestTenant, str], None]) -> str:
    """Return an ID token of the browser's user whose key verifies no more."""
    token = str(app.tokens()["id_token"])
    end(app.tenant, jwt.get_unverified_header(token)["kid"])
    return token


def logout(app: Application, **sent: str) -> Any:
    return app.browser.get(f"{app.issuer}/logout?{urlencode(sent)}")


def confirmed(app: Application, page: Any) -> Any:
    """Send the form of the page that asks."""
    assert page.status_code == 200, page.content
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', page.content.decode())
    sent = urlencode(fields).encode()
    return app.browser.post(f"{app.issuer}/logout", raw=sent, content_type="application/x-www-form-urlencoded")


def is_signed_in(app: Application, user: User) -> bool:
    with in_tenant(app.tenant.id):
        active = EndUserSession.objects.filter(user_id=user.id, ended_at=None).count()
    assert active in (0, 2)
    return active == 2


def error_of(app: Application, **sent: str) -> str:
    """Return the error that the application gets, "" for a code."""
    location = app.authorize(**sent).headers["Location"]
    assert location.startswith(CALLBACK)
    return query_of(location).get("error", "")


# --- logout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_logout_with_old_hint_asks_and_returns(end: Any, app: Application, user: User) -> None:
    sent = {"id_token_hint": old_hint(app, end), "client_id": app.client["client_id"], "state": "s"}
    page = logout(app, **sent, post_logout_redirect_uri=BACK)
    assert is_signed_in(app, user)
    response = confirmed(app, page)
    assert (response.status_code, response.headers["Location"]) == (303, f"{BACK}?state=s")
    assert not is_signed_in(app, user)


def test_logout_with_old_hint_alone_stays_here(app: Application, user: User) -> None:
    # What the hint says was not verified: it does not name the client that the address must be registered for.
    page = logout(app, id_token_hint=old_hint(app, expired), post_logout_redirect_uri=BACK, state="s")
    assert is_signed_in(app, user)
    response = confirmed(app, page)
    assert (response.status_code, response.headers["Location"]) == (303, f"{app.issuer}/signin")
    assert not is_signed_in(app, user)


def test_logout_with_old_hint_never_redirects_elsewhere(app: Application, user: User, other_tenant: TestTenant) -> None:
    hint, client_id = old_hint(app, expired), app.client["client_id"]
    for address in ("https://attacker.example.com/", f"{BACK}/more"):
        assert logout(app, id_token_hint=hint, client_id=client_id, post_logout_redirect_uri=address).status_code == 400
        page = logout(app, id_token_hint=hint, post_logout_redirect_uri=address)
        assert confirmed(app, page).headers["Location"] == f"{app.issuer}/signin"
        app.sign_in(user)
    foreign = register_application(other_tenant, post_logout_redirect_uris=[BACK])["client_id"]
    assert logout(app, id_token_hint=hint, client_id=foreign, post_logout_redirect_uri=BACK).status_code == 400


def test_old_hint_for_another_client_is_rejected(app: Application, user: User) -> None:
    hint = old_hint(app, expired)
    another = register_application(app.tenant, post_logout_redirect_uris=[BACK])["client_id"]
    assert logout(app, id_token_hint=hint, client_id=another, post_logout_redirect_uri=BACK).status_code == 400
    assert is_signed_in(app, user)


def test_old_hint_of_another_tenant_is_rejected(app: Application, user: User, new_tenant: NewTenant) -> None:
    other = new_tenant()
    foreign = Application(other, register_application(other, first_party=True))
    foreign.sign_in(other.register())
    hint = old_hint(foreign, expired)
    app.tokens()
    assert logout(app, id_token_hint=hint).status_code == 400
    assert error_of(app, id_token_hint=hint) == "invalid_request"
    assert is_signed_in(app, user)


def test_forged_old_hint_ends_nothing_unasked(app: Application, user: User) -> None:
    claims = jwt.decode(app.tokens()["id_token"], options={"verify_signature": False})
    for algorithm, key in (("HS256", "k" * 32), ("none", None)):
        forged = jwt.encode(claims, key, algorithm=algorithm, headers={"kid": "A" * 43, "typ": "JWT"})
        assert logout(app, id_token_hint=forged).status_code in (200, 400)
        assert is_signed_in(app, user)
        app.browser.client.cookies.pop(cookie_name(SESSION, app.tenant.id))
        logout(app, id_token_hint=forged)
        assert is_signed_in(app, user)
        assert error_of(app, id_token_hint=forged, prompt="none") in ("login_required", "invalid_request")
        with in_tenant(app.tenant.id):
            EndUserSession.objects.filter(user_id=user.id).delete()
        app.sign_in(user)
        app.tokens()


# --- authorization ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_silent_request_with_old_hint_needs_login(end: Any, app: Application) -> None:
    hint = old_hint(app, end)
    assert error_of(app, id_token_hint=hint, prompt="none") == "login_required"
    # The pages accept its user only, as with the claim `sub`, which is not verified either.
    assert error_of(app, id_token_hint=hint) == ""
    app.sign_in(app.tenant.register())
    assert error_of(app, id_token_hint=hint, prompt="none") == "login_required"
    assert "/signin?request=" in page_of(app.authorize(id_token_hint=hint))


def test_old_hint_of_another_client_is_an_error(app: Application, home: TestTenant) -> None:
    another = Application(home, register_application(home, first_party=True), browser=app.browser)
    hint = old_hint(another, expired)
    assert error_of(app, id_token_hint=hint, prompt="none") == "invalid_request"
    assert error_of(app, id_token_hint=hint) == "invalid_request"


def test_old_hint_can_be_pushed(app: Application) -> None:
    sent = app.parameters(id_token_hint=old_hint(app, expired), prompt="none")
    form = {"raw": urlencode(sent).encode(), "content_type": "application/x-www-form-urlencoded"}
    pushed = app.browser.post(f"{app.issuer}/par", **form)
    assert pushed.status_code == 201, pushed.content
    query = urlencode({"client_id": app.client["client_id"], "request_uri": pushed.json()["request_uri"]})
    response = app.browser.get(f"{app.issuer}/authorize?{query}")
    assert query_of(response.headers["Location"])["error"] == "login_required"


# --- a former issuer -------------------------------------------------------------------------------------------------


@pytest.fixture
def moved(app: Application, user: User, name_server: DnsServer) -> tuple[ApplicationAt, str]:
    """The application after the tenant got a sign-in domain, and an ID token from before."""
    budget.clear()
    check_budget.clear()
    hint = str(app.tokens()["id_token"])
    domain = sign_in_domain(app.tenant, name_server)["domain"]
    return ApplicationAt(app.tenant, app.client, host=domain), hint


def test_hint_of_former_issuer_signs_out(moved: tuple[ApplicationAt, str], user: User) -> None:
    app, hint = moved
    app.sign_in(user)
    response = logout(app, id_token_hint=hint, post_logout_redirect_uri=BACK)
    assert (response.status_code, response.headers["Location"]) == (303, BACK)
    with in_tenant(app.tenant.id):
        # The ID token alone does not end the sign-in at the former address, whose cookie was not sent.
        [left] = EndUserSession.objects.filter(user_id=user.id, ended_at=None)
    assert (left.client_id, left.parent_id) == (None, None)


def test_hint_of_former_issuer_names_its_user(moved: tuple[ApplicationAt, str], user: User) -> None:
    app, hint = moved
    app.sign_in(user)
    assert error_of(app, id_token_hint=hint, prompt="none") == ""
    app.sign_in(app.tenant.register())
    assert error_of(app, id_token_hint=hint, prompt="none") == "login_required"


def test_hint_of_given_up_domain_signs_out(home: TestTenant, user: User, name_server: DnsServer) -> None:
    budget.clear()
    check_budget.clear()
    row = sign_in_domain(home, name_server)
    client = register_application(home, first_party=True, post_logout_redirect_uris=[BACK])
    at_domain = ApplicationAt(home, client, host=row["domain"])
    at_domain.sign_in(user)
    hint = str(at_domain.tokens()["id_token"])
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    app = Application(home, client)
    app.sign_in(user)
    app.tokens()
    response = logout(app, id_token_hint=hint, post_logout_redirect_uri=BACK)
    assert (response.status_code, response.headers["Location"]) == (303, BACK)
