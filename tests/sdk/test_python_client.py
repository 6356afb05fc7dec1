"""sdk/python signs users in and out, keeps their tokens, and reads errors."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest

from identity_sdk import ApiError, IdentityClient, MemoryStorage, SecondStep, SignedOut, StepUpRequired, Tokens
from identity_sdk.errors import error_of
from identity_sdk.models import Profile
from tests.mfa.people import code_to, new_user, wrong_code
from tests.mfa.webauthn.passkeys import new_authenticator
from tests.sdk.readme import example, names_of
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.sessions.clients import make_client
from tests.userflow.sessions.test_suspended_tenants import set_state
from tests.world import PASSWORD, Api, TestTenant

CALLS = 20
# Status and body of error responses, and code, message and details that are read from them.
FORMATS: list[tuple[int, Any, str, str, dict[str, Any]]] = [
    (403, {"error": "Forbidden", "code": "email_not_verified", "message": "No."}, "email_not_verified", "No.", {}),
    (
        400,
        {"error": "Bad Request", "message": "No.", "details": {"name": ["x"]}},
        "bad_request",
        "No.",
        {"name": ["x"]},
    ),
    (409, {"error": {"code": "SERVICE_EXISTS", "message": "It exists."}}, "SERVICE_EXISTS", "It exists.", {}),
    (400, {"error": "invalid_scope", "error_description": "No."}, "invalid_scope", "No.", {}),
    (400, {"error": "invalid_request"}, "invalid_request", "Bad Request", {}),
    (
        400,
        {"error": "invalid_grant", "error_description": "No.", "code": "tenant_suspended"},
        "tenant_suspended",
        "No.",
        {},
    ),
    (502, ["a proxy"], "bad_gateway", "Bad Gateway", {}),
    (502, "<html>", "bad_gateway", "Bad Gateway", {}),
]


@dataclass
class Storage(MemoryStorage):
    """Counts what is saved."""

    saved: list[Tokens | None] = field(default_factory=list)
    _tokens: Tokens | None = None

    def save(self, tokens: Tokens | None) -> None:
        self.saved.append(tokens)
        super().save(tokens)


@dataclass
class Setup:
    """A client whose requests are recorded."""

    client: IdentityClient
    storage: Storage
    requests: list[str]
    signed_out: list[bool]

    def profile(self) -> Profile:
        return self.client.call("GET", "/authmgr/profile", Profile)


@pytest.fixture
def setup(base: str, tenant: TestTenant) -> Setup:
    requests: list[str] = []
    signed_out: list[bool] = []
    storage = Storage()
    http = httpx2.Client(timeout=60, event_hooks={"request": [lambda request: requests.append(request.url.path)]})
    client = IdentityClient(
        base,
        tenant_id=str(tenant.id),
        client_id=str(tenant.client_id),
        storage=storage,
        http=http,
        on_signed_out=lambda: signed_out.append(True),
    )
    return Setup(client, storage, requests, signed_out)


def second_step(setup: Setup, email: str) -> SecondStep:
    step = setup.client.sign_in(email, PASSWORD)
    assert step
    assert not setup.client.is_signed_in
    return step


def test_password_signs_in_and_out(setup: Setup, tenant: TestTenant) -> None:
    person = tenant.register()
    assert setup.client.sign_in(person.email, PASSWORD) is None
    assert setup.profile()["email"] == person.email
    token = setup.client.access_token()
    setup.client.sign_out()
    assert Api(token=token).get("/authmgr/validate").status_code == 401
    with pytest.raises(SignedOut):
        setup.profile()


def test_every_code_is_a_second_step(setup: Setup, tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_phone()
    person.enrol_totp(token=sms_token(setup, person))
    assert set(second_step(setup, person.email).methods) == {"totp", "sms", "backup_code"}
    with pytest.raises(ApiError) as error:
        second_step(setup, person.email).totp(wrong_code(person.secret))
    assert (error.value.status, error.value.message) == (400, "Invalid verification code")
    assert error.value.request_id
    second_step(setup, person.email).totp(person.code(1))
    assert setup.profile()["email"] == person.email
    setup.client.sign_out()
    second_step(setup, person.email).backup_code(person.backup_codes.pop())
    assert setup.profile()["email"] == person.email


def sms_token(setup: Setup, person: Any) -> str:
    """Sign in by a code that is sent; the session has proven a factor."""
    step = second_step(setup, person.email)
    step.send_sms()
    step.sms(code_to(person.phone))
    token = setup.client.access_token()
    setup.storage.save(None)
    person.minutes_pass(2)
    return token


def test_passkey_is_second_step_and_signs_in_alone(setup: Setup, tenant: TestTenant) -> None:
    person, authenticator = new_user(tenant), new_authenticator()
    headers = {"X-Enrollment-Ticket": person.ticket}
    options = person.api.post("/webauthn/enduser/beginRegistration", person.name, headers=headers).json()
    body = {**person.name, "credential": authenticator.create(options)}
    done = person.api.post("/webauthn/enduser/finishRegistration", body, headers=headers)
    assert done.status_code == 200, done.content
    step = second_step(setup, person.email)
    step.passkey(authenticator.get(step.passkey_options()))
    assert setup.profile()["email"] == person.email
    proof = setup.client.step_up(response=authenticator.get(setup.client.step_up_options()))
    assert proof
    setup.client.sign_out()
    setup.client.sign_in_with_passkey(authenticator.get(setup.client.passkey_options()))
    assert setup.profile()["email"] == person.email


@pytest.mark.parametrize("cause", ["expired", "rejected"])
def test_parallel_calls_refresh_once(setup: Setup, tenant: TestTenant, cause: str) -> None:
    person = tenant.register()
    setup.client.sign_in(person.email, PASSWORD)
    (before,) = setup.storage.saved
    assert before
    is_expired = cause == "expired"
    access_token, ends = (before.access_token, 0) if is_expired else ("revoked", time.time() + 60)
    setup.storage._tokens = Tokens(access_token, before.refresh_token, ends)
    with ThreadPoolExecutor(CALLS) as pool:
        found = list(pool.map(lambda _: setup.profile()["email"], range(CALLS)))
    assert found == [person.email] * CALLS
    assert setup.requests.count("/authmgr/token") == 1
    (_, after) = setup.storage.saved
    assert after
    assert after.refresh_token != before.refresh_token


def test_failed_refresh_signs_out(setup: Setup, tenant: TestTenant) -> None:
    person = tenant.register()
    setup.client.sign_in(person.email, PASSWORD)
    Api(token=setup.client.access_token()).post("/authmgr/logout", {"all": True})

    def call(_: int) -> str:
        with pytest.raises(SignedOut) as error:
            setup.profile()
        return type(error.value).__name__

    with ThreadPoolExecutor(CALLS) as pool:
        assert list(pool.map(call, range(CALLS))) == ["SignedOut"] * CALLS
    assert setup.requests.count("/authmgr/token") == 1
    assert (setup.signed_out, setup.storage.saved[1:]) == ([True], [None])


def test_confidential_client_authenticates_and_keeps_sessions(base: str, tenant: TestTenant) -> None:
    person, made = tenant.register(), make_client(tenant, first_party=True)

    def client(secret: str, storage: MemoryStorage) -> IdentityClient:
        named = {"tenant_id": str(tenant.id), "client_id": made["client_id"]}
        return IdentityClient(base, **named, client_secret=secret, storage=storage)

    storage = MemoryStorage()
    client(made["client_secret"], storage).sign_in(person.email, PASSWORD)
    tokens = storage.load()
    assert tokens
    storage.save(replace(tokens, expires_at=0))
    # A wrong secret is an error of the application: the user stays signed in.
    with pytest.raises(ApiError) as error:
        client("ics_wrong", storage).access_token()
    assert (error.value.status, error.value.code) == (401, "invalid_client")
    assert client(made["client_secret"], storage).access_token() != tokens.access_token


def test_unavailable_platform_signs_no_user_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, waiting = list[str](), threading.Semaphore(0)

    class Flight(Future[Tokens]):
        def result(self, timeout: float | None = None) -> Tokens:
            waiting.release()
            return super().result(timeout)

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        # All other calls wait for this one.
        assert all(waiting.acquire(timeout=60) for _ in range(CALLS - 1))
        return httpx2.Response(503, headers={"Retry-After": "7"})

    monkeypatch.setattr("identity_sdk.transport.Future", Flight)
    storage, http = MemoryStorage(Tokens("a", "r", 0)), httpx2.Client(transport=httpx2.MockTransport(respond))
    client = IdentityClient("https://id.example", tenant_id="t", client_id="c", storage=storage, http=http)

    def call(number: int) -> ApiError:
        with pytest.raises(ApiError) as error:
            client.access_token()
        return error.value

    with ThreadPoolExecutor(CALLS) as pool:
        errors = list(pool.map(call, range(CALLS)))
    assert asked == ["/authmgr/token"]
    assert {(error.status, error.code, error.retry_after) for error in errors} == {(503, "service_unavailable", 7)}
    assert client.is_signed_in


def test_suspended_tenant_signs_no_user_out(base: str, new_tenant: Callable[[], TestTenant]) -> None:
    tenant, storage = new_tenant(), MemoryStorage()
    person = tenant.register()
    client = IdentityClient(base, tenant_id=str(tenant.id), client_id=str(tenant.client_id), storage=storage)
    client.sign_in(person.email, PASSWORD)
    set_state(tenant, "suspended")
    # With an access token that is valid, and one that has expired.
    for expires_at, status in ((1e12, 403), (0, 400)):
        tokens = storage.load()
        assert tokens
        storage.save(replace(tokens, expires_at=expires_at))
        with pytest.raises(ApiError) as error:
            client.call("GET", "/authmgr/profile", Profile)
        assert (error.value.status, error.value.code) == (status, "tenant_suspended")
    set_state(tenant, "active")
    assert client.call("GET", "/authmgr/profile", Profile)["email"] == person.email


def test_refresh_does_not_undo_a_sign_out() -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        storage.save(None)
        return httpx2.Response(200, json={"access_token": "b", "refresh_token": "s", "expires_in": 60})

    storage, http = MemoryStorage(Tokens("a", "r", 0)), httpx2.Client(transport=httpx2.MockTransport(respond))
    client = IdentityClient("https://id.example", tenant_id="t", client_id="c", storage=storage, http=http)
    assert client.access_token() == "b"
    assert not client.is_signed_in


def test_step_up_raises_the_session(setup: Setup, tenant: TestTenant) -> None:
    person = new_user(tenant)
    setup.client.sign_in(person.email, PASSWORD)
    person.enrol_totp(token=setup.client.access_token())
    codes = {"json": person.name}
    with pytest.raises(StepUpRequired) as error:
        setup.client.call("POST", "/webauthn/totp/regenerateBackupCodes", object, **codes)
    assert (error.value.max_age, error.value.acr_values) == (900, "aal2")
    # The factor is newer than the session: the password comes first.
    setup.client.step_up(password=PASSWORD)
    proof = setup.client.step_up(backup_code=person.backup_codes.pop())
    assert setup.requests.count("/authmgr/token") == 0
    codes["json"]["backup_code"] = person.backup_codes.pop()
    setup.client.call("POST", "/webauthn/totp/regenerateBackupCodes", object, **codes)
    change = {"new_password": "another horse 8 battery", "proof_token": proof}
    setup.client.call("POST", "/authmgr/profile/password", object, json=change)
    # The refresh token is still the session's.
    setup.storage._tokens = Tokens("revoked", setup.storage._tokens.refresh_token, time.time() + 60)  # type: ignore[union-attr]  # signed in
    assert setup.profile()["email"] == person.email


def test_forgotten_password_is_reset(setup: Setup, tenant: TestTenant) -> None:
    person = tenant.register()
    setup.client.forgot_password(person.email)
    setup.client.reset_password(token_in(mails_to(person.email, "new password")[-1]), "another horse 8 battery")
    with pytest.raises(ApiError) as error:
        setup.client.sign_in(person.email, PASSWORD)
    assert error.value.status == 401
    assert setup.client.sign_in(person.email, "another horse 8 battery") is None


def test_readme_signs_in_and_steps_up(
    base: str, setup: Setup, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    person = new_user(tenant).enrol_totp()
    values = {"base_url": base, "TENANT_ID": str(tenant.id), "CLIENT_ID": str(tenant.client_id)}
    signing_in = example("python", "Sign a user in", **values, **{"ann@example.com": person.email})
    monkeypatch.setattr("builtins.input", lambda _: person.backup_codes.pop())
    names = names_of(signing_in)
    assert capsys.readouterr().out == f"{person.email}\n"
    names_of(example("python", "Errors and step-up"), **names)
    assert capsys.readouterr().out == ""
    assert setup.client.sign_in(person.email, "another horse 8 battery")


@pytest.mark.parametrize(("status", "body", "code", "message", "details"), FORMATS)
def test_every_format_of_errors(status: int, body: Any, code: str, message: str, details: dict[str, Any]) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    error = error_of(httpx2.Response(status, text=content, headers={"X-Request-ID": "r1", "Retry-After": "Wed"}))
    assert (error.status, error.code, error.message, error.details) == (status, code, message, details)
    assert (error.request_id, error.retry_after) == ("r1", None)
