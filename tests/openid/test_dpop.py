"""Tokens that are bound to a key: only with a fresh proof by that key, for that request, once (RFC 9449)."""

import hashlib
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from django.conf import settings
from django.core.cache import cache
from django.test.utils import override_settings

from identity_platform.api import valkey
from tests.mfa.webauthn.passkeys import end_users_of, user_with_passkey
from tests.openid.application_sessions import access_token, allow, browser, open_application
from tests.openid.dpop_keys import DpopKey, new_private_key
from tests.parallel import run_concurrently
from tests.world import Api, TestTenant

VALIDATE = "/authmgr/validate"


def bound_token(tenant: TestTenant, key: DpopKey) -> str:
    allow(tenant, audiences=["identity-api"])
    return access_token(tenant, open_application(tenant, browser(tenant), binding=key.jkt))


def read(headers: dict[str, str]) -> Any:
    return Api().get(VALIDATE, headers=headers)


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "EdDSA"])
def test_api_takes_bound_token_with_proof(algorithm: str, tenant: TestTenant) -> None:
    key = DpopKey(algorithm)
    token = bound_token(tenant, key)
    response = read(key.headers("GET", VALIDATE, token))
    assert response.status_code == 200, response.content
    assert jwt.decode(token, options={"verify_signature": False})["cnf"] == {"jkt": key.jkt}


def test_bound_token_is_rejected_as_bearer(tenant: TestTenant) -> None:
    key = DpopKey()
    token = bound_token(tenant, key)
    assert Api(token=token).get(VALIDATE).status_code == 401
    proof = key.proof("GET", VALIDATE, access_token=token)
    assert Api(token=token).get(VALIDATE, headers={"DPoP": proof}).status_code == 401
    assert read({"Authorization": f"DPoP {token}"}).status_code == 401


def test_bearer_token_is_rejected_with_dpop_scheme(tenant: TestTenant) -> None:
    token = str(tenant.sign_in(tenant.register())["access_token"])
    assert read(DpopKey().headers("GET", VALIDATE, token)).status_code == 401


def test_proof_by_another_key_is_rejected(tenant: TestTenant, other_tenant: TestTenant) -> None:
    key, other = DpopKey(), DpopKey()
    token = bound_token(tenant, key)
    bound_token(other_tenant, other)
    response = read(other.headers("GET", VALIDATE, token))
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith('DPoP error="invalid_dpop_proof"')


@pytest.mark.parametrize(
    "changes",
    [
        {"htm": "POST"},
        {"htu": "https://attacker.example.com/authmgr/validate"},
        {"htu": "http://[broken"},
        {"htu": 7},
        {"ath": "x"},
        {"ath": None},
        {"jti": None},
        {"jti": ""},
        {"jti": "x" * 300},
        {"jti": 7},
        {"iat": None},
        {"iat": True},
        {"iat": "now"},
        {"iat": 10**400},
        {"iat": -(10**400)},
        {"iat": float("nan")},
        {"iat": float("inf")},
        {"jti": "\ud800"},
        {"jti": "\x00"},
        {"jti": "é"},
        {"htm": ["GET"]},
        {"htu": "\ud800"},
        {"htu": ["x"]},
        {"exp": "later"},
        {"exp": float("nan")},
        {"nbf": 10**400},
        {"nbf": [1]},
        {"header": {"typ": "JWT"}},
        {"header": {"typ": "at+jwt"}},
        {"header": {"jwk": None}},
        {"header": {"jwk": {"kty": "EC"}}},
        {"header": {"crit": ["b64"], "b64": False}},
    ],
)
def test_wrong_proof_is_rejected(changes: dict[str, Any], tenant: TestTenant) -> None:
    key = DpopKey()
    assert read(key.headers("GET", VALIDATE, bound_token(tenant, key), **changes)).status_code == 401


@pytest.mark.parametrize("seconds", [-300, 300])
def test_proof_of_another_time_is_rejected(seconds: int, tenant: TestTenant) -> None:
    key = DpopKey()
    headers = key.headers("GET", VALIDATE, bound_token(tenant, key), iat=int(time.time()) + seconds)
    assert read(headers).status_code == 401


def test_proof_with_private_symmetric_or_weak_key_is_rejected(tenant: TestTenant) -> None:
    key = DpopKey()
    token = bound_token(tenant, key)
    claims = {"jti": "a", "htm": "GET", "htu": "x", "iat": int(time.time())}
    symmetric = {"typ": "dpop+jwt", "jwk": {"kty": "oct", "k": "c2VjcmV0"}}
    weak = DpopKey("RS256", private=new_private_key("RS256", 1024))
    proofs = [
        key.proof("GET", VALIDATE, access_token=token, header={"jwk": {**key.jwk, "d": "AA"}}),
        jwt.encode(claims, "secret" * 10, algorithm="HS256", headers=symmetric),
        jwt.encode(claims, "", algorithm="none", headers=symmetric),
        weak.proof("GET", VALIDATE, access_token=token),
        "x",
        "a.b.c",
        "x" * 9000,
        f"{key.proof('GET', VALIDATE, access_token=token)}, {key.proof('GET', VALIDATE, access_token=token)}",
    ]
    statuses = [read({"Authorization": f"DPoP {token}", "DPoP": proof}).status_code for proof in proofs]
    assert statuses == [401] * len(proofs)


def test_proof_ignores_query_and_default_port(tenant: TestTenant) -> None:
    key = DpopKey()
    token = bound_token(tenant, key)
    headers = key.headers("GET", VALIDATE, token)
    assert Api().get(VALIDATE, query={"a": "b"}, headers=headers).status_code == 200


def test_replayed_proof_is_rejected(tenant: TestTenant) -> None:
    key = DpopKey()
    headers = key.headers("GET", VALIDATE, bound_token(tenant, key))
    assert [read(headers).status_code for _ in range(3)] == [200, 401, 401]


@pytest.mark.parametrize("ahead", [0, 58])
def test_proof_is_remembered_as_long_as_it_is_valid(tenant: TestTenant, ahead: int) -> None:
    key, jti, dated = DpopKey(), secrets.token_urlsafe(16), int(time.time()) + ahead
    assert read(key.headers("GET", VALIDATE, bound_token(tenant, key), jti=jti, iat=dated)).status_code == 200
    digest = hashlib.sha256(f"{key.jkt} {jti}".encode()).hexdigest()
    remembered_for = int(valkey.client().ttl(cache.make_key(f"once:dpop:{digest}")))
    # `iat` may be a minute past.
    assert time.time() + remembered_for >= dated + 60


def test_proof_is_rejected_without_valkey(tenant: TestTenant) -> None:
    key = DpopKey()
    headers = key.headers("GET", VALIDATE, bound_token(tenant, key))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = {**settings.CACHES["default"], "LOCATION": [f"redis://127.0.0.1:{closed.getsockname()[1]}/0"]}
        with override_settings(CACHES={**settings.CACHES, "default": away}):
            assert [read(headers).status_code for _ in range(2)] == [503, 503]
    # It was not used up.
    assert [read(headers).status_code for _ in range(2)] == [200, 401]


def test_of_concurrent_uses_of_a_proof_one_passes(tenant: TestTenant) -> None:
    key = DpopKey()
    headers = key.headers("GET", VALIDATE, bound_token(tenant, key))
    statuses = run_concurrently([lambda: read(headers).status_code for _ in range(8)])
    assert sorted(statuses) == [200] + [401] * 7


def test_nonce_of_the_server_is_required(tenant: TestTenant) -> None:
    key = DpopKey()
    token = bound_token(tenant, key)
    with override_settings(DPOP_NONCES=True):
        first = read(key.headers("GET", VALIDATE, token))
        assert (first.status_code, 'error="use_dpop_nonce"' in first.headers["WWW-Authenticate"]) == (401, True)
        nonce = first.headers["DPoP-Nonce"]
        assert read(key.headers("GET", VALIDATE, token, nonce=nonce)).status_code == 200
        assert read(key.headers("GET", VALIDATE, token, nonce="x")).status_code == 401


def test_bound_client_signs_no_user_in_without_a_key(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person, authenticator = user_with_passkey(tenant)
    home = end_users_of(tenant)
    response = authenticator.get(home.options())
    allow(tenant, dpop_bound_access_tokens=True)
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": person.password}
    for rejected in (Api().post("/uflow/auth/enduser/login", login), home.finish_authentication(None, response)):
        assert (rejected.status_code, rejected.json()["code"]) == (401, "invalid_client"), rejected.content
        assert "bound to a key only" in rejected.json()["message"]
