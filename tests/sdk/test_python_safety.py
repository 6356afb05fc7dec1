"""sdk/python sends secrets to the platform alone, stores only tokens, and keeps sessions that several workers use."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest

from identity_sdk import (
    ApiError,
    ClientCredentials,
    IdentityClient,
    IdentityError,
    InvalidResponse,
    MemoryStorage,
    Registry,
    SignedOut,
    StepUpRequired,
    Tokens,
    verify_webhook,
)
from identity_sdk.errors import error_of
from tests.sdk.readme import example, names_of

BASE = "https://id.example"
Respond = Callable[[httpx2.Request], httpx2.Response]


def http_of(respond: Respond) -> httpx2.Client:
    return httpx2.Client(transport=httpx2.MockTransport(respond))


def client_of(respond: Respond, storage: MemoryStorage | None = None, **options: Any) -> IdentityClient:
    return IdentityClient(BASE, tenant_id="t", client_id="c", storage=storage, http=http_of(respond), **options)


def issue(request: httpx2.Request) -> httpx2.Response:
    """Respond as the platform does to every request for a token, and with what was sent to any other."""
    if request.url.path.endswith("/token"):
        return httpx2.Response(200, json={"access_token": "a1", "expires_in": 60, "refresh_token": "r1"})
    return httpx2.Response(
        200, json={"url": str(request.url), "authorization": request.headers.get_list("Authorization")}
    )


@pytest.mark.parametrize("url", ["https://other.example/x", "http://id.example/x", "https://id.example:8443/x"])
def test_client_token_is_sent_to_no_other_origin(url: str) -> None:
    asked = list[httpx2.Request]()

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return issue(request)

    credentials = ClientCredentials(BASE, "c", "s", http=http_of(respond))
    with httpx2.Client(auth=credentials, transport=httpx2.MockTransport(respond)) as http:
        with pytest.raises(IdentityError, match="origins"):
            http.get(url)
        assert asked == []
        assert http.get(f"{BASE}:443/x").json()["authorization"] == ["Bearer a1"]
    trusting = ClientCredentials(BASE, "c", "s", origins=[url], http=http_of(respond))
    with httpx2.Client(auth=trusting, transport=httpx2.MockTransport(respond)) as http:
        assert http.get(url).json()["authorization"] == ["Bearer a1"]


def test_client_token_is_for_a_resource() -> None:
    asked = list[httpx2.Request]()

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return issue(request)

    credentials = ClientCredentials(
        BASE, "c", "s", issuer=f"{BASE}/t/acme", resource="https://api.example.com/v1", http=http_of(respond)
    )
    with httpx2.Client(auth=credentials, transport=httpx2.MockTransport(issue)) as http:
        assert http.get("https://api.example.com/v1/invoices").json()["authorization"] == ["Bearer a1"]
        with pytest.raises(IdentityError):
            http.get(f"{BASE}/authmgr/validate")
    (request,) = asked
    assert (str(request.url), b"resource=https%3A%2F%2Fapi.example.com%2Fv1" in request.content) == (
        f"{BASE}/t/acme/token",
        True,
    )
    with pytest.raises(ValueError, match="issuer"):
        ClientCredentials(BASE, "c", "s", resource="https://api.example.com")


def test_new_client_token_is_not_replaced() -> None:
    asked, rejected = list[str](), httpx2.Response(401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        return issue(request)

    credentials = ClientCredentials(BASE, "c", "s", http=http_of(respond))
    with httpx2.Client(auth=credentials, transport=httpx2.MockTransport(lambda _: rejected)) as http:
        assert [http.get(f"{BASE}/x").status_code for _ in range(3)] == [401] * 3
    assert len(asked) == 1


def test_failed_client_token_is_requested_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, waiting = list[str](), threading.Semaphore(0)

    class Counted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            waiting.release()
            return super().result(timeout)

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        assert all(waiting.acquire(timeout=60) for _ in range(3))
        return httpx2.Response(503)

    monkeypatch.setattr("identity_sdk.transport.Future", Counted)
    credentials = ClientCredentials(BASE, "c", "s", http=http_of(respond))

    def call(_: int) -> int:
        with pytest.raises(ApiError) as error:
            credentials.token()
        return error.value.status

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(4))) == [503] * 4
    assert asked == ["/authmgr/token"]


def test_registry_takes_the_service_of_exactly_this_name() -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/services"):
            services = [{"id": "1", "name": "payments"}, {"id": "2", "name": "Payments"}]
            return httpx2.Response(200, json={"services": services})
        if request.url.path.endswith("/services/2/credentials"):
            return httpx2.Response(200, json={"base_url": "https://pay.example", "credentials": []})
        return issue(request)

    registry = Registry(BASE, ClientCredentials(BASE, "c", "s", http=http_of(respond)))
    assert registry.credentials("Payments") == []
    with pytest.raises(IdentityError, match="no service"):
        registry.credentials("PAYMENTS")


@pytest.mark.parametrize("base", ["http://id.example", "id.example", "", "ftp://127.0.0.1", None])
def test_platform_is_reached_by_https(base: Any) -> None:
    for make in (
        lambda: IdentityClient(base, tenant_id="t", client_id="c"),
        lambda: ClientCredentials(base, "c", "s"),
        lambda: (
            ClientCredentials(BASE, "c", "s", issuer=base) if base is not None else ClientCredentials(base, "c", "s")
        ),
    ):
        with pytest.raises(ValueError, match="must"):
            make()
    for local in ("http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]"):
        assert IdentityClient(local, tenant_id="t", client_id="c").base_url == local


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"mfa_required": False, "access_token": "a", "expires_in": 60},
        {"access_token": "", "refresh_token": "r", "expires_in": 60},
        {"access_token": "a", "refresh_token": "r", "expires_in": True},
        {"access_token": "a", "refresh_token": "r", "expires_in": "60"},
        {"mfa_required": True},
        "<html>",
    ],
)
def test_other_success_is_no_sign_in(body: Any) -> None:
    content = {"text": body} if isinstance(body, str) else {"json": body}
    client = client_of(lambda _: httpx2.Response(200, **content))
    with pytest.raises(InvalidResponse):
        client.sign_in("ann@example.com", "x")
    assert not client.is_signed_in


def test_infinite_lifetime_is_no_sign_in() -> None:
    text = '{"access_token": "a", "refresh_token": "r", "expires_in": %s}'
    for number in ("Infinity", "NaN", "1" + "0" * 400):
        with pytest.raises(InvalidResponse):
            client_of(lambda _, number=number: httpx2.Response(200, text=text % number)).sign_in("a", "x")


def test_secrets_are_not_redirected() -> None:
    asked = list[str]()

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(307, headers={"Location": "https://other.example/"})

    http = httpx2.Client(transport=httpx2.MockTransport(respond), follow_redirects=True)
    client = IdentityClient(BASE, tenant_id="t", client_id="c", http=http)
    signed_in, expired = (
        IdentityClient(BASE, tenant_id="t", client_id="c", http=http, storage=MemoryStorage(Tokens("a", "r", ends)))
        for ends in (1e12, 0)
    )
    for call in (
        lambda: client.sign_in("ann@example.com", "x"),
        lambda: signed_in.step_up(password="x"),
        expired.access_token,
        ClientCredentials(BASE, "c", "s", http=http).token,
    ):
        with pytest.raises(ApiError, match="307"):
            call()
    assert len(asked) == 4


def test_calls_stay_at_the_platform() -> None:
    storage = MemoryStorage(Tokens("a", "r", 1e12))
    client = client_of(issue, storage)
    for path in ("authmgr/profile", "@other.example/x", ".other.example/x", ":8443/x", "https://other.example/"):
        with pytest.raises(ValueError, match="path"):
            client.call("GET", path, object)
    with pytest.raises(ValueError, match="path"):
        client.call("GET", "/roles/{id}", object, path_params={"id": ".."})
    said = client.call(
        "GET", "/roles/{id}", dict[str, Any], path_params={"id": "a/../b?c"}, headers={"authorization": "Basic x"}
    )
    assert said == {"url": f"{BASE}/roles/a%2F..%2Fb%3Fc", "authorization": ["Bearer a"]}


def rejecting(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(400, json={"error": "invalid_grant"})


def test_callback_may_use_the_client() -> None:
    signed_in, storage = list[bool](), MemoryStorage(Tokens("a", "r", 0))

    def ended() -> None:
        with pytest.raises(SignedOut):
            client.access_token()
        signed_in.append(client.is_signed_in)

    client = client_of(rejecting, storage, on_signed_out=ended)
    with ThreadPoolExecutor(1) as pool, pytest.raises(SignedOut):
        pool.submit(client.access_token).result(60)
    assert signed_in == [False]


def test_callback_is_for_tokens_that_were_removed() -> None:
    called, storage = list[bool](), MemoryStorage(Tokens("a", "r", 0))

    def respond(request: httpx2.Request) -> httpx2.Response:
        storage.save(Tokens("b", "another sign-in", 1e12))
        return rejecting(request)

    client = client_of(respond, storage, on_signed_out=lambda: called.append(True))
    with pytest.raises(SignedOut):
        client.access_token()
    assert (called, client.access_token()) == ([], "b")


class Row:
    """Tokens that several workers share."""

    def __init__(self) -> None:
        self.tokens: Tokens | None = Tokens("a", "r0", 0)
        self.lock = threading.Lock()


class Snapshot:
    """Reads the row at the start of a request, and again inside of `exclusively`."""

    def __init__(self, row: Row) -> None:
        self.row, self.seen = row, row.tokens

    def load(self) -> Tokens | None:
        return self.seen

    def save(self, tokens: Tokens | None) -> None:
        assert self.row.lock.locked()
        self.row.tokens = self.seen = tokens

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        with self.row.lock:
            self.seen = self.row.tokens
            yield


def test_second_worker_uses_the_tokens_of_the_first() -> None:
    row, used = Row(), list[str]()

    def respond(request: httpx2.Request) -> httpx2.Response:
        used.extend([request.url.path] if request.url.path == "/authmgr/token" else [])
        tokens = {"access_token": "b", "refresh_token": "r1", "expires_in": 60}
        return httpx2.Response(200, json={**tokens, "proof_token": "p"})

    workers = [
        IdentityClient(BASE, tenant_id="t", client_id="c", storage=Snapshot(row), http=http_of(respond))
        for _ in range(2)
    ]
    assert [worker.access_token() for worker in workers] == ["b", "b"]
    assert len(used) == 1
    assert row.tokens
    assert row.tokens.refresh_token == "r1"
    # Every change is made inside of the lock.
    workers[0].step_up(password="x")
    workers[0].sign_out()
    workers[0].accept({"access_token": "c", "refresh_token": "r2", "expires_in": 60})
    assert workers[0].access_token() == "c"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("9" * 5000, None), ("٣", None), ("-1", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)],
)
def test_retry_after_is_seconds_or_a_date(header: str, seconds: int | None) -> None:
    response = httpx2.Response(503, headers=[(b"Retry-After", header.encode())])
    assert error_of(response).retry_after == seconds


def test_retry_after_of_a_date_is_the_time_until_then() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    after = error_of(httpx2.Response(503, headers={"Retry-After": later})).retry_after
    assert after is not None
    assert 3500 < after <= 3600


def test_deeply_nested_error_is_an_api_error() -> None:
    assert error_of(httpx2.Response(502, text="[" * 100_000)).code == "bad_gateway"


@pytest.mark.parametrize(
    ("fields", "needs_factor"), [('max_age=900, acr_values="aal2"', False), ('acr_values="aal2"', True)]
)
def test_step_up_tells_whether_a_factor_is_missing(fields: str, needs_factor: bool) -> None:
    challenge = f'Bearer error="insufficient_user_authentication", {fields}'
    body = {"error": "Unauthorized", "code": "insufficient_user_authentication", "message": "No."}
    error = error_of(httpx2.Response(401, json=body, headers={"WWW-Authenticate": challenge}))
    assert isinstance(error, StepUpRequired)
    assert error.needs_factor == needs_factor


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        (
            'max_age=900, acr_values="aal2"',
            ["/authmgr/profile/password", "/authmgr/step-up", "/authmgr/profile/password"],
        ),
        ('acr_values="aal2"', ["/authmgr/profile/password"]),
    ],
)
def test_readme_steps_up_at_most_once(
    fields: str, paths: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: "0000-0000-0000-0000")
    asked, bodies = list[str](), list[Any]()
    challenge = {"WWW-Authenticate": f'Bearer error="insufficient_user_authentication", {fields}'}

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        bodies.append(json.loads(request.content))
        if request.url.path == "/authmgr/step-up":
            return httpx2.Response(200, json={"access_token": "b", "expires_in": 60, "proof_token": "p"})
        return httpx2.Response(
            401, json={"code": "insufficient_user_authentication", "message": "No."}, headers=challenge
        )

    client = client_of(respond, MemoryStorage(Tokens("a", "r", 1e12)))
    names_of(example("python", "Errors and step-up"), client=client)
    assert capsys.readouterr().out.startswith("401 insufficient_user_authentication")
    assert asked == paths
    assert all(body.get("proof_token") == "p" for body in bodies[2:])


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_\u00e9"])
def test_bad_webhook_secret_is_an_error_of_the_configuration(secret: str) -> None:
    with pytest.raises(ValueError, match="secret"):
        verify_webhook(secret, b"{}", {})
