"""Authorization requests to a tenant that cannot sign users in: the application gets the error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings

from tenants.states import State
from tests.copies import change_mapping
from tests.openid.relying_party import CALLBACK, Application, query_of, register_application
from tests.userflow.sessions.clients import FORM
from tests.world import Api, TestTenant

ERRORS = {
    State.SUSPENDED: "access_denied",
    State.MOVING: "temporarily_unavailable",
    State.MIGRATING: "temporarily_unavailable",
}
PAGES = {State.SUSPENDED: 403, State.MOVING: 503, State.MIGRATING: 503}


@pytest.fixture
def app(new_tenant: Callable[[], TestTenant]) -> Application:
    own = new_tenant()
    app = Application(own, register_application(own, first_party=True))
    app.sign_in(own.register())
    return app


@contextmanager
def state(tenant: TestTenant, status: State) -> Iterator[None]:
    change_mapping(tenant.id, status=status)
    try:
        yield
    finally:
        change_mapping(tenant.id, status=State.ACTIVE)


def assert_returned(response: Any, app: Application, error: str) -> None:
    assert response.status_code == 303, response.content
    address = response.headers["Location"]
    query = query_of(address)
    assert address.startswith(f"{CALLBACK}?")
    assert (query["error"], query["state"]) == (error, "a state")
    assert query["iss"] == f"{settings.TOKEN_ISSUER}{app.issuer}"


@pytest.mark.parametrize("prompt", [None, "none"])
@pytest.mark.parametrize("status", ERRORS)
def test_application_gets_the_error(status: State, prompt: str | None, app: Application) -> None:
    with state(app.tenant, status):
        assert_returned(app.authorize(prompt=prompt), app, ERRORS[status])
        form = urlencode(app.parameters(prompt=prompt)).encode()
        posted = Api().post(f"{app.issuer}/authorize", raw=form, content_type=FORM)
        assert_returned(posted, app, ERRORS[status])
    assert "code" in query_of(app.authorize().headers["Location"])


@pytest.mark.parametrize("status", ERRORS)
@pytest.mark.parametrize(
    "changed", [{"redirect_uri": "https://evil.example/"}, {"client_id": "unknown"}, {"redirect_uri": [CALLBACK] * 2}]
)
def test_unverified_redirect_uri_gets_a_page(status: State, changed: dict[str, Any], app: Application) -> None:
    with state(app.tenant, status):
        response = app.authorize(**changed)
    assert response.status_code == PAGES[status]
    assert "Location" not in response.headers


def test_pushed_request_gets_a_page(app: Application) -> None:
    sent = urlencode(app.parameters()).encode()
    pushed = Api().post(f"{app.issuer}/par", raw=sent, content_type=FORM).json()
    query = urlencode({"client_id": app.client["client_id"], "request_uri": pushed["request_uri"]})
    with state(app.tenant, State.MOVING):
        response = app.browser.get(f"{app.issuer}/authorize?{query}")
    assert (response.status_code, "Location" in response.headers) == (503, False)
