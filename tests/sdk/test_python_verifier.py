"""sdk/python verifies tokens with keys that are fetched rarely, by one thread, and from the issuer alone."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from identity_sdk import AccessDenied, Verifier, keys

ISSUER, AUDIENCE = "https://id.example/t/acme", "https://api.example.com"
KEY = ec.generate_private_key(ec.SECP256R1())
JWK = jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True) | {"kid": "k1", "alg": "ES256", "use": "sig"}


def token(kid: str | None = "k1", **changed: Any) -> str:
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "u1",
        "iat": now,
        "exp": now + 600,
        "jti": "j1",
        "kind": "end_user",
    }
    header = {"typ": "at+jwt", **({} if kid is None else {"kid": kid})}
    return jwt.encode({**claims, **changed}, KEY, algorithm="ES256", headers=header)


@dataclass
class Issuer:
    """The issuer, as a transport; `wait` holds a fetch of keys until it is set."""

    asked: list[str] = field(default_factory=list)
    metadata: Any = field(default_factory=lambda: {"issuer": ISSUER, "jwks_uri": "https://id.example/jwks"})
    jwks: Any = field(default_factory=lambda: {"keys": [JWK]})
    status: int = 200
    now: float = 0
    wait: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.url.path)
        if request.url.path != "/jwks":
            return httpx2.Response(200, json=self.metadata)
        self.entered.set()
        assert self.wait is None or self.wait.wait(60)
        return httpx2.Response(self.status, json=self.jwks)

    def verifier(self) -> Verifier:
        return Verifier(ISSUER, audience=AUDIENCE, http=httpx2.Client(transport=httpx2.MockTransport(self.respond)))


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Issuer:
    issuer = Issuer()
    monkeypatch.setattr(keys, "monotonic", lambda: issuer.now)
    return issuer


def status_of(verifier: Verifier, presented: str) -> int:
    try:
        verifier.verify(presented)
    except AccessDenied as denied:
        return denied.status
    return 200


def test_slow_fetch_for_an_unknown_key_stalls_no_other_request(at: Issuer) -> None:
    verifier = at.verifier()
    assert status_of(verifier, token()) == 200
    at.now, at.wait = 31, threading.Event()
    at.entered.clear()
    with ThreadPoolExecutor(1) as pool:
        garbage = pool.submit(status_of, verifier, token("made-up"))
        try:
            assert at.entered.wait(60)
            # Also with keys that are no longer fresh.
            assert status_of(verifier, token()) == 200
            at.now = 400
            assert [status_of(verifier, each) for each in (token(), token("made-up too"))] == [200, 503]
        finally:
            at.wait.set()
        assert garbage.result() == 401


def test_failed_fetches_count_and_known_keys_outlive_them(at: Issuer) -> None:
    at.status = 500
    verifier = at.verifier()
    assert [status_of(verifier, token()) for _ in range(3)] == [503] * 3
    assert len(at.asked) == 2
    at.status, at.now = 200, 31
    assert [status_of(verifier, each) for each in (token(), token("made-up"))] == [200, 401]
    assert len(at.asked) == 3
    at.status, at.now = 500, 400
    assert [status_of(verifier, each) for each in (token(), token("made-up"), token())] == [200, 503, 200]
    assert len(at.asked) == 4
    # A key that was removed is not used forever.
    at.now = 1000
    assert status_of(verifier, token()) == 503


def test_tokens_that_no_key_can_verify_cause_no_fetch(at: Issuer) -> None:
    verifier = at.verifier()
    symmetric = jwt.encode({}, "s" * 32, algorithm="HS256", headers={"typ": "at+jwt", "kid": "k1"})
    for presented in (token(None), token(""), symmetric, "\ud800.a.b", "[" * 5000):
        assert status_of(verifier, presented) == 401
    assert at.asked == []


@pytest.mark.parametrize(
    ("metadata", "jwks"),
    [
        ([], None),
        ({}, None),
        ({"issuer": ISSUER, "jwks_uri": "http://id.example/jwks"}, None),
        (None, []),
        (None, {"keys": []}),
        (None, {"keys": ["k1"]}),
        (None, {}),
    ],
)
def test_unreadable_keys_are_unavailable(at: Issuer, metadata: Any, jwks: Any) -> None:
    at.metadata = at.metadata if metadata is None else metadata
    at.jwks = at.jwks if jwks is None else jwks
    with pytest.raises(AccessDenied) as denied:
        at.verifier().verify(token())
    assert (denied.value.status, denied.value.headers) == (503, {"Retry-After": "5"})


@pytest.mark.parametrize(
    "claims", [{"kind": "root"}, {"kind": None}, {"permissions": "invoices:read"}, {"permissions": [["x"]]}]
)
def test_claims_of_another_form_are_invalid(at: Issuer, claims: dict[str, Any]) -> None:
    assert status_of(at.verifier(), token(**claims)) == 401


def test_principal_is_a_hashable_user_without_rights_of_django(at: Issuer) -> None:
    principal = at.verifier().verify(token(permissions=["a:read"]))
    assert {principal} == {principal}
    assert (principal.is_authenticated, principal.is_active) == (True, True)
    assert (principal.is_anonymous, principal.is_staff, principal.is_superuser) == (False, False, False)


@pytest.mark.parametrize(
    ("issuer", "audience"),
    [(None, "x"), ("", "x"), (ISSUER, ""), (ISSUER, None), ("http://id.example/t/acme", "x"), ("id.example", "x")],
)
def test_verifier_needs_issuer_and_audience(issuer: Any, audience: Any) -> None:
    with pytest.raises(ValueError, match="must"):
        Verifier(issuer, audience=audience)
