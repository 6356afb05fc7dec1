"""What a request asks of the user: prompts, age and level of the sign-in, consent, and `prompt=none`."""

import base64
from datetime import timedelta
from typing import Any

import orjson
import pytest
from django.db.models import F

from openid.authorization import flow
from openid.authorization.consents import grant_consent
from openid.authorization.flow import Step
from openid.authorization.requests import PendingRequest, pending_request
from openid.browser import BROWSER, SESSION, cookie_name
from openid.errors import RequestExpired, StepRequired
from openid.models import AuthorizationRequest
from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.openid.relying_party import CALLBACK, Application, page_of, query_of, register_application
from tests.parallel import run_concurrently
from tests.world import Api, TestTenant, User
from userflow.accounts.session_models import EndUserSession
from userflow.sessions.browser import find_browser_session

RESOURCE = "https://orders.example.com"


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register()


@pytest.fixture
def app(tenant: TestTenant, user: User) -> Application:
    """A first-party application, and a browser that is signed in."""
    app = Application(tenant, register_application(tenant, first_party=True))
    app.sign_in(user)
    return app


@pytest.fixture
def third_party(tenant: TestTenant, user: User) -> Application:
    app = Application(tenant, register_application(tenant))
    app.sign_in(user)
    return app


def cookie(app: Application, kind: str) -> str:
    return app.browser.client.cookies[cookie_name(kind, app.tenant.id)].value


def session_of(app: Application) -> EndUserSession:
    with in_tenant(app.tenant.id):
        found = find_browser_session(cookie(app, SESSION))
    assert found is not None
    return found


def pending_of(app: Application, response: Any) -> PendingRequest:
    handle = query_of(page_of(response))["request"]
    with in_tenant(app.tenant.id):
        return pending_request(handle, cookie(app, BROWSER))


def step_of(app: Application, **changed: Any) -> str:
    """Return the step that a request needs in this browser; `done` if there was a code at once."""
    response = app.authorize(**changed)
    if page_of(response).startswith(CALLBACK):
        return query_of(response.headers["Location"]).get("error", Step.DONE)
    with in_tenant(app.tenant.id):
        return flow.next_step(pending_of(app, response), session_of(app))


def age(app: Application, seconds: int, **fields: Any) -> None:
    """Move the sign-in of the browser into the past."""
    with in_tenant(app.tenant.id):
        earlier = timedelta(seconds=seconds)
        moved = {"auth_time": F("auth_time") - earlier, "created_at": F("created_at") - earlier, **fields}
        EndUserSession.objects.filter(pk=session_of(app).pk).update(**moved)


# --- sign-in ---------------------------------------------------------------------------------------------------------


def test_signed_in_user_gets_a_code_at_once(app: Application) -> None:
    assert step_of(app) == Step.DONE
    assert step_of(app, prompt="none") == Step.DONE


def test_prompt_login_needs_a_new_proof(app: Application) -> None:
    assert step_of(app, prompt="login") == Step.SIGN_IN
    pending = pending_of(app, app.authorize(prompt="login"))
    app.sign_in(User(session_of(app).user_id, session_of(app).user.email))
    with in_tenant(app.tenant.id):
        assert flow.next_step(pending, session_of(app)) == Step.DONE


def test_max_age_compares_the_time_of_the_last_proof(app: Application) -> None:
    age(app, 100)
    assert step_of(app, max_age="200") == Step.DONE
    assert step_of(app, max_age="50") == Step.SIGN_IN
    assert step_of(app, max_age="0") == Step.SIGN_IN
    assert step_of(app, max_age="50", prompt="none") == "login_required"


def test_default_max_age_of_the_client_applies(tenant: TestTenant, user: User) -> None:
    app = Application(tenant, register_application(tenant, first_party=True, default_max_age=50))
    app.sign_in(user)
    age(app, 100)
    assert step_of(app) == Step.SIGN_IN
    assert step_of(app, max_age="200") == Step.DONE


def test_requested_level_needs_a_step_up(app: Application) -> None:
    assert step_of(app, acr_values="aal1") == Step.DONE
    assert step_of(app, acr_values="unknown aal2 aal1") == Step.STEP_UP
    assert step_of(app, acr_values="aal2", prompt="none") == "login_required"
    claims = orjson.dumps({"id_token": {"acr": {"essential": True, "values": ["aal2"]}}}).decode()
    assert step_of(app, claims=claims) == Step.STEP_UP
    age(app, 0, acr="aal2")
    assert step_of(app, acr_values="aal2") == Step.DONE


def test_requested_subject_must_be_the_user(app: Application, user: User) -> None:
    def claims(subject: object) -> str:
        return orjson.dumps({"id_token": {"sub": {"value": str(subject)}}}).decode()

    assert step_of(app, claims=claims(user.id)) == Step.DONE
    assert step_of(app, claims=claims(app.tenant.register().id)) == Step.SIGN_IN
    assert step_of(app, claims=claims(app.tenant.register().id), prompt="none") == "login_required"


def test_id_token_hint_must_be_of_the_user(app: Application, user: User) -> None:
    own, other = app.tokens()["id_token"], Application(app.tenant, app.client)
    other.sign_in(app.tenant.register())
    another = other.tokens()["id_token"]
    assert step_of(app, id_token_hint=own, prompt="none") == Step.DONE
    assert step_of(app, id_token_hint=another, prompt="none") == "login_required"
    assert step_of(app, id_token_hint=another) == Step.SIGN_IN


def test_invalid_id_token_hint_is_an_error(
    app: Application, third_party: Application, other_tenant: TestTenant
) -> None:
    elsewhere = Application(other_tenant, register_application(other_tenant, first_party=True))
    elsewhere.sign_in(other_tenant.register())
    tokens = app.tokens()
    nested = base64.urlsafe_b64encode(b"[" * 5000).decode().rstrip("=")
    for hint in ("x", "a.b.c", "\u00e9", f"{nested}.e30.eA", tokens["access_token"], elsewhere.tokens()["id_token"]):
        assert step_of(app, id_token_hint=hint, prompt="none") == "invalid_request"
    assert step_of(third_party, id_token_hint=tokens["id_token"]) == "invalid_request"
    subject = orjson.dumps({"id_token": {"sub": {"value": str(app.tenant.register().id)}}}).decode()
    assert step_of(app, id_token_hint=tokens["id_token"], claims=subject) == "invalid_request"


def test_select_account_asks_once(app: Application) -> None:
    response = app.authorize(prompt="select_account")
    pending, session = pending_of(app, response), session_of(app)
    with in_tenant(app.tenant.id):
        assert flow.next_step(pending, session) == Step.SELECT_ACCOUNT
        assert flow.next_step(flow.choose_account(pending, session), session) == Step.DONE


def test_session_of_another_tenant_is_not_used(app: Application, other_tenant: TestTenant) -> None:
    elsewhere = Application(other_tenant, register_application(other_tenant, first_party=True), browser=app.browser)
    app.browser.client.cookies[cookie_name(SESSION, other_tenant.id)] = cookie(app, SESSION)
    location = elsewhere.authorize(prompt="none").headers["Location"]
    assert query_of(location)["error"] == "login_required"


def test_ended_session_gets_no_code(app: Application) -> None:
    age(app, 0, ended_at=F("created_at"))
    assert query_of(app.authorize(prompt="none").headers["Location"])["error"] == "login_required"


# --- consent ---------------------------------------------------------------------------------------------------------


def test_consent_is_asked_once_for_each_scope(third_party: Application) -> None:
    app = third_party
    assert step_of(app, prompt="none") == "consent_required"
    response = app.authorize(scope="openid email")
    pending, session = pending_of(app, response), session_of(app)
    with in_tenant(app.tenant.id):
        assert flow.next_step(pending, session) == Step.CONSENT
        location = flow.complete(flow.record_consent(pending, session), session).url
    assert app.exchange(query_of(location)["code"]).status_code == 200
    assert step_of(app, scope="openid email") == Step.DONE
    assert step_of(app, scope="email") == Step.DONE
    assert step_of(app, scope="openid email profile") == Step.CONSENT


def test_consent_is_asked_once_for_each_audience(third_party: Application) -> None:
    app = third_party
    change_client(app.client["client_id"], audiences=[RESOURCE, "identity-api"])
    pending, session = pending_of(app, app.authorize()), session_of(app)
    with in_tenant(app.tenant.id):
        flow.complete(flow.record_consent(pending, session), session)
    # Without `resource` the token is for the client's first audience.
    assert step_of(app) == Step.DONE
    assert step_of(app, resource=RESOURCE) == Step.DONE
    assert step_of(app, resource=[RESOURCE, "identity-api"]) == Step.CONSENT
    assert step_of(app, resource="identity-api", prompt="none") == "consent_required"


def test_claim_by_name_needs_consent_to_its_scope(third_party: Application, user: User) -> None:
    with in_tenant(third_party.tenant.id):
        grant_consent(user_id=user.id, client_id=third_party.client["client_id"], scopes=["openid"])
    assert step_of(third_party) == Step.DONE
    assert step_of(third_party, claims='{"userinfo": {"email": null}}') == Step.CONSENT
    assert step_of(third_party, claims='{"id_token": {"phone_number": null}}') == Step.CONSENT


def test_prompt_consent_asks_again(app: Application) -> None:
    pending, session = pending_of(app, app.authorize(prompt="consent")), session_of(app)
    with in_tenant(app.tenant.id):
        assert flow.next_step(pending, session) == Step.CONSENT
        assert flow.next_step(flow.record_consent(pending, session), session) == Step.DONE


def test_consent_of_one_user_is_not_that_of_the_next(app: Application) -> None:
    pending, session = pending_of(app, app.authorize(prompt="consent")), session_of(app)
    with in_tenant(app.tenant.id):
        consented = flow.record_consent(pending, session)
    app.sign_in(app.tenant.register())
    with in_tenant(app.tenant.id):
        assert flow.next_step(consented, session_of(app)) == Step.CONSENT


def test_request_is_not_completed_before_its_steps(third_party: Application) -> None:
    pending = pending_of(third_party, third_party.authorize())
    with in_tenant(third_party.tenant.id):
        with pytest.raises(StepRequired):
            flow.complete(pending, session_of(third_party))
        with pytest.raises(StepRequired):
            flow.complete(pending, None)


def test_request_is_completed_once(third_party: Application) -> None:
    pending, session = pending_of(third_party, third_party.authorize()), session_of(third_party)
    with in_tenant(third_party.tenant.id):
        pending = flow.record_consent(pending, session)

    def complete() -> str | None:
        with in_tenant(third_party.tenant.id):
            try:
                return flow.complete(pending, session).url
            except RequestExpired:
                return None

    assert len([address for address in run_concurrently([complete] * 6) if address]) == 1
    with in_tenant(third_party.tenant.id), pytest.raises(RequestExpired):
        flow.deny(pending, "access_denied", "The user has denied the request.")


def test_denied_request_returns_access_denied(third_party: Application) -> None:
    pending = pending_of(third_party, third_party.authorize())
    with in_tenant(third_party.tenant.id):
        fields = query_of(flow.deny(pending, "access_denied", "The user has denied the request.").url)
    assert (fields["error"], fields["state"]) == ("access_denied", "a state")
    assert fields["iss"].endswith(third_party.issuer)


# --- what prompt=none tells ------------------------------------------------------------------------------------------


def test_prompt_none_tells_nothing_about_the_user(app: Application, third_party: Application) -> None:
    unknown = Application(app.tenant, third_party.client, browser=Api())
    for asked, error in ((unknown, "login_required"), (third_party, "consent_required")):
        response = asked.authorize(prompt="none", login_hint="someone@example.com")
        fields = query_of(response.headers["Location"])
        assert set(fields) == {"error", "error_description", "state", "iss"}
        assert fields["error"] == error
        assert not response.content


def test_prompt_none_stores_no_request(third_party: Application) -> None:
    third_party.authorize(prompt="none")
    with in_tenant(third_party.tenant.id):
        found = AuthorizationRequest.objects.filter(client_id=third_party.client["client_id"])
        assert not found.exists()
