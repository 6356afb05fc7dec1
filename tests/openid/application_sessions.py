"""Sessions of browsers and of applications, opened by the platform's own actions."""

from functools import partial
from typing import Any

from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.world import PASSWORD, TestTenant, undo_after_test
from userflow.accounts.models import Client
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.sessions import issue
from userflow.sessions.browser import (
    ApplicationSession,
    find_browser_session,
    open_child_session,
)
from userflow.signin.delivery import BrowserCookie
from userflow.signin.password import sign_in_browser
from userflow.signin.pipeline import Waiting


def sign_in(tenant: TestTenant, email: str, password: str = PASSWORD) -> tuple[str | None, str | None]:
    """Return the cookie, or the ticket for the second step."""
    delivery = BrowserCookie("Browser")
    result = sign_in_browser(tenant_id=tenant.id, email=email, password=password, delivery=delivery)
    return (None, result.mfa_token) if isinstance(result, Waiting) else (result.cookie, None)


def cookie_of(tenant: TestTenant, email: str, password: str = PASSWORD) -> str:
    """Return the cookie of a new session of a user without a second factor."""
    cookie, _ = sign_in(tenant, email, password)
    assert cookie
    return cookie


def session_of(tenant: TestTenant, cookie: str | None) -> EndUserSession:
    assert cookie
    with in_tenant(tenant.id):
        found = find_browser_session(cookie)
    assert found is not None
    return found


def browser(tenant: TestTenant, email: str | None = None) -> EndUserSession:
    return session_of(tenant, sign_in(tenant, email or tenant.register().email)[0])


def open_application(tenant: TestTenant, parent: EndUserSession, **how: Any) -> ApplicationSession:
    values: dict[str, Any] = {"client_id": tenant.client_id, "scopes": ("openid",), "audiences": ("identity-api",)}
    with in_tenant(tenant.id), END_USERS.atomic():
        return open_child_session(parent, **{**values, "offline": True, **how})


def allow(tenant: TestTenant, client_id: object = None, **fields: Any) -> None:
    """Change columns of a client until the end of the test; by default of the default client."""
    client_id = client_id or tenant.client_id
    before = Client.objects.filter(pk=client_id).values(*fields).get()
    undo_after_test.append(partial(change_client, client_id, **before))
    change_client(client_id, **fields)


def access_token(tenant: TestTenant, opened: ApplicationSession, *, first_party: bool = False) -> str:
    """Return an access token of an application's session, as the token endpoint issues it."""
    with in_tenant(tenant.id) as entered:
        return issue.application_access_token(opened.session, opened.rights, tenant=entered, first_party=first_party)[0]
