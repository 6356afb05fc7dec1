"""Requests as common libraries send them: long hints, more blanks than necessary, and `prompt=create`."""

from typing import Any

import pytest

from openid.authorization.requests import pending_request
from openid.browser import BROWSER, cookie_name
from tenants.entering.context import in_tenant
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.openid.relying_party import Application, page_of, query_of, register_application
from tests.userflow.sessions.clients import form
from tests.world import PASSWORD, Api, TestTenant

# An application that users can register with.
OPEN = {"first_party": True, "self_registration": True}
TOO_LONG = "a" * 250 + "@example.com"


@pytest.fixture
def app(tenant: TestTenant) -> Application:
    return Application(tenant, register_application(tenant, first_party=True))


def parameters_of(app: Application, response: Any) -> Any:
    handle = query_of(page_of(response))["request"]
    with in_tenant(app.tenant.id):
        return pending_request(handle, app.browser.client.cookies[cookie_name(BROWSER, app.tenant.id)].value).parameters


def test_login_hint_that_is_too_long_is_ignored(app: Application) -> None:
    assert parameters_of(app, app.authorize(login_hint=TOO_LONG)).login_hint == ""


def test_pushed_login_hint_that_is_too_long_is_ignored(app: Application) -> None:
    pushed = app.new_caller().post(f"{app.issuer}/par", **form(**app.parameters(login_hint=TOO_LONG)))
    assert pushed.status_code == 201, pushed.content


def test_pushed_login_hint_may_be_as_long_as_one_in_the_address(app: Application) -> None:
    hint = "a" * 60_000
    assert app.new_caller().post(f"{app.issuer}/par", **form(**app.parameters(login_hint=hint))).status_code == 201
    assert parameters_of(app, app.authorize(login_hint=hint)).login_hint == ""


def test_blanks_between_scopes_do_not_count(app: Application, tenant: TestTenant) -> None:
    app.sign_in(tenant.register())
    tokens = app.tokens(scope=" openid  email ")
    assert tokens["scope"] == "openid email"
    narrowed = app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"], scope="openid  email ")
    assert narrowed.json()["scope"] == "openid email"


def test_prompt_create_begins_with_the_registration(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    app = begin(visitor, client=OPEN, prompt="create")
    assert visitor.at == "register", visitor.text
    visitor.sends(name="Nora", email="nora-of-prompt-create@example.com", password=PASSWORD)
    assert app.exchange(code_of(visitor.page)).status_code == 200


def test_prompt_create_does_not_go_on_with_the_account_signed_in(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.signs_in(tenant.register())
    begin(visitor, client=OPEN, prompt="create")
    assert visitor.at == "register", visitor.text


def test_prompt_create_signs_in_where_the_application_takes_no_new_users(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    begin(visitor, prompt="create")
    assert visitor.at == "signin", visitor.text


def test_prompt_create_signs_in_where_registration_is_closed(tenant: TestTenant) -> None:
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(path, {"settings": {"self_registration": False}}).status_code == 200
    try:
        visitor = Visitor(tenant)
        begin(visitor, client=OPEN, prompt="create")
        assert visitor.at == "signin", visitor.text
    finally:
        tenant.api.patch(path, {"settings": {"self_registration": None}})


def test_metadata_lists_create(tenant: TestTenant) -> None:
    document = Api().get(f"/t/{tenant.slug}/.well-known/openid-configuration").json()
    assert "create" in document["prompt_values_supported"]
