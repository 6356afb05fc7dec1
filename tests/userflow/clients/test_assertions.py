"""Clients that authenticate with a key (private_key_jwt, RFC 7523), and the way that each client has registered."""

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from django.conf import settings
from django.test import override_settings

from identity_platform.api import valkey
from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.parallel import run_concurrently
from tests.userflow.clients.keys import PrivateKey, assertion, key_set, new_key, public_jwk
from tests.userflow.clients.test_clients import path
from tests.userflow.sessions.clients import basic, form, make_client, own_token
from tests.world import Api, TestTenant
from userflow.sessions.client_assertions import LEEWAY, LONGEST_SECONDS

PATH = "/authmgr/token"
TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def issuer(tenant: TestTenant) -> str:
    return f"{settings.TOKEN_ISSUER}/t/{tenant.slug}"


def key_client(tenant: TestTenant, *keys: dict[str, Any], **members: Any) -> dict[str, Any]:
    if keys:
        members["jwks"] = key_set(*keys)
    return make_client(tenant, token_endpoint_auth_method="private_key_jwt", **members)


def post(stated: str, path: str = PATH, **parameters: str) -> Any:
    proof = {"client_assertion_type": TYPE, "client_assertion": stated}
    if path == PATH:
        parameters.setdefault("grant_type", "client_credentials")
    return Api().post(path, **form(**{**proof, **parameters}))


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return new_key()


# --- happy path ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "alg"),
    [
        (new_key, "ES256"),
        (lambda: new_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate, "EdDSA"),
        (lambda: rsa.generate_private_key(65537, 2048), "RS256"),
        (lambda: rsa.generate_private_key(65537, 2048), "PS256"),
    ],
)
def test_assertion_authenticates_client(tenant: TestTenant, make: Any, alg: str) -> None:
    key = make()
    client = key_client(tenant, public_jwk(key))
    response = post(assertion(key, client["id"], issuer(tenant), alg=alg), client_id=client["id"])
    assert response.status_code == 200, response.content
    assert response.json()["scope"] == "services:read services:credentials" or response.json()["access_token"]


def test_assertion_needs_no_client_id(tenant: TestTenant, key: PrivateKey) -> None:
    client = key_client(tenant, public_jwk(key))
    assert post(assertion(key, client["id"], issuer(tenant))).status_code == 200


def test_assertion_may_name_the_token_endpoint(tenant: TestTenant, key: PrivateKey) -> None:
    client = key_client(tenant, public_jwk(key))
    for audience in (f"{settings.BASE_URL}{PATH}", f"{settings.BASE_URL}/t/{tenant.slug}/token", [issuer(tenant)]):
        assert post(assertion(key, client["id"], audience)).status_code == 200


def test_assertion_authenticates_introspection_and_revocation(tenant: TestTenant, key: PrivateKey) -> None:
    client = key_client(tenant, public_jwk(key))
    token = post(assertion(key, client["id"], issuer(tenant))).json()["access_token"]
    known = post(assertion(key, client["id"], issuer(tenant)), f"{PATH}/introspect", token=token)
    assert (known.status_code, known.json()["active"]) == (200, True)
    assert post(assertion(key, client["id"], issuer(tenant)), f"{PATH}/revoke", token=token).status_code == 200
    known = post(assertion(key, client["id"], issuer(tenant)), f"{PATH}/introspect", token=token)
    assert known.json() == {"active": False}


def test_key_is_chosen_by_kid(tenant: TestTenant, key: PrivateKey) -> None:
    second = new_key()
    client = key_client(tenant, public_jwk(key, kid="a"), public_jwk(second, kid="b"))
    for signer, kid, expected in (
        (key, "a", 200),
        (second, "b", 200),
        (second, None, 200),
        (key, "b", 401),
        (key, "c", 401),
    ):
        stated = assertion(signer, client["id"], issuer(tenant), headers={"kid": kid} if kid else None)
        assert post(stated).status_code == expected


def test_metadata_names_the_method(tenant: TestTenant) -> None:
    found = Api().get(f"/.well-known/oauth-authorization-server/t/{tenant.slug}").json()
    assert "private_key_jwt" in found["token_endpoint_auth_methods_supported"]
    assert set(found["token_endpoint_auth_signing_alg_values_supported"]) >= {"ES256", "EdDSA", "PS256"}


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": str(uuid4())},
        {"sub": str(uuid4())},
        {"iss": None},
        {"aud": None},
        {"aud": "https://elsewhere.example"},
        {"aud": settings.BASE_URL},
        {"aud": {}},
        {"aud": []},
        {"jti": None},
        {"jti": ""},
        {"jti": 7},
        {"jti": "j" * 1025},
        {"exp": None},
        {"exp": "soon"},
        {"exp": 1},
        {"exp": 4_000_000_000},
        {"exp": int(time.time()) + 86_400},
        {"exp": 1e400},
        {"nbf": 4_000_000_000},
        {"iat": 4_000_000_000},
    ],
)
def test_assertion_with_wrong_claim_is_rejected(tenant: TestTenant, key: PrivateKey, claims: dict[str, Any]) -> None:
    client = key_client(tenant, public_jwk(key))
    stated = assertion(key, client["id"], **{"audience": issuer(tenant), **claims}) if "aud" not in claims else None
    stated = stated or assertion(key, client["id"], claims["aud"])
    response = post(stated, client_id=client["id"])
    assert (response.status_code, response.json()["error"]) == (401, "invalid_client")


def test_assertion_for_two_servers_is_rejected(tenant: TestTenant, key: PrivateKey) -> None:
    client = key_client(tenant, public_jwk(key))
    stated = assertion(key, client["id"], [issuer(tenant), "https://elsewhere.example"])
    assert post(stated).status_code == 401


def test_assertion_of_another_key_or_algorithm_is_rejected(tenant: TestTenant, key: PrivateKey) -> None:
    client = key_client(tenant, public_jwk(key))
    claims = {"iss": client["id"], "sub": client["id"], "aud": issuer(tenant), "jti": "x", "exp": int(time.time()) + 60}
    pem = public_jwk(key)["x"]
    forged = [
        assertion(new_key(), client["id"], issuer(tenant)),
        jwt.encode(claims, None, algorithm="none"),
        jwt.encode(claims, pem * 2, algorithm="HS256"),
        assertion(key, client["id"], issuer(tenant), headers={"crit": ["b64"], "b64": False}),
        "no.jwt.here",
        "x",
    ]
    assert [post(stated, client_id=client["id"]).status_code for stated in forged] == [401] * len(forged)


def test_assertion_works_once(tenant: TestTenant, key: PrivateKey) -> None:
    client = key_client(tenant, public_jwk(key))
    stated = assertion(key, client["id"], issuer(tenant))
    responses = run_concurrently([lambda: post(stated) for _ in range(6)])
    assert sorted(response.status_code for response in responses) == [200, 401, 401, 401, 401, 401]
    other = key_client(tenant, public_jwk(key))
    jti = jwt.decode(stated, options={"verify_signature": False})["jti"]
    assert post(assertion(key, other["id"], issuer(tenant), jti=jti)).status_code == 200


def test_rejected_assertion_does_not_use_up_its_jti(tenant: TestTenant, key: PrivateKey) -> None:
    client, jti = key_client(tenant, public_jwk(key)), uuid4().hex
    assert post(assertion(new_key(), client["id"], issuer(tenant), jti=jti)).status_code == 401
    assert post(assertion(key, client["id"], issuer(tenant), jti=jti)).status_code == 200


def test_assertion_is_rejected_without_valkey(tenant: TestTenant, key: PrivateKey) -> None:
    client = key_client(tenant, public_jwk(key))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with override_settings(REDIS_URL=f"redis://127.0.0.1:{closed.getsockname()[1]}/0"):
            assert post(assertion(key, client["id"], issuer(tenant))).status_code == 503


def test_assertion_is_remembered_as_long_as_it_is_valid(tenant: TestTenant, key: PrivateKey) -> None:
    client, jti = key_client(tenant, public_jwk(key)), uuid4().hex
    expires = int(time.time()) + LONGEST_SECONDS + LEEWAY - 2
    assert post(assertion(key, client["id"], issuer(tenant), jti=jti, exp=expires)).status_code == 200
    name = f"assertion:{client['id']}:{hashlib.sha256(jti.encode()).hexdigest()}"
    assert time.time() + int(valkey.client().ttl(name)) >= expires + LEEWAY


def test_assertion_of_another_tenants_client_is_rejected(
    tenant: TestTenant, other_tenant: TestTenant, key: PrivateKey
) -> None:
    mine, foreign = key_client(tenant, public_jwk(key)), key_client(other_tenant, public_jwk(new_key()))
    assert post(assertion(key, mine["id"], issuer(other_tenant))).status_code == 401
    assert post(assertion(key, foreign["id"], issuer(other_tenant))).status_code == 401


def test_assertion_and_secret_together_are_rejected(tenant: TestTenant, key: PrivateKey) -> None:
    client = key_client(tenant, public_jwk(key))
    stated = assertion(key, client["id"], issuer(tenant))
    both = post(stated, client_id=client["id"], client_secret="ics_x")
    assert (both.status_code, both.json()["error"]) == (400, "invalid_request")
    proof = form(grant_type="client_credentials", client_assertion_type=TYPE, client_assertion=stated)
    assert Api().post(PATH, **proof, headers=basic(client, "ics_x")).json()["error"] == "invalid_request"
    other = form(grant_type="client_credentials", client_assertion_type="urn:x", client_assertion=stated)
    assert Api().post(PATH, **other).status_code == 401


def test_rejected_assertion_is_audited(tenant: TestTenant, key: PrivateKey) -> None:
    client = key_client(tenant, public_jwk(key))
    post(assertion(new_key(), client["id"], issuer(tenant)))
    with in_tenant(tenant.id):
        event = TenantEvent.objects.get(action="client.refused", target_id=client["id"])
    assert event.outcome == "refused"


# --- the way that the client has registered --------------------------------------------------------------------------


def test_client_authenticates_only_as_registered(tenant: TestTenant, key: PrivateKey) -> None:
    def attempts(client: dict[str, Any], secret: str) -> list[int]:
        by_body = form(grant_type="client_credentials", client_id=client["id"], client_secret=secret)
        by_header = form(grant_type="client_credentials")
        return [
            Api().post(PATH, **by_header, headers=basic(client, secret)).status_code,
            Api().post(PATH, **by_body).status_code,
            post(assertion(key, client["id"], issuer(tenant))).status_code,
        ]

    expected = {None: [200, 200, 401], "client_secret_basic": [200, 401, 401], "client_secret_post": [401, 200, 401]}
    for method, statuses in expected.items():
        client = make_client(tenant, token_endpoint_auth_method=method, jwks=key_set(public_jwk(key)))
        assert attempts(client, client["client_secret"]) == statuses
    assert attempts(key_client(tenant, public_jwk(key)), "ics_none") == [401, 401, 200]


def test_client_with_a_key_signs_no_user_in_without_it(tenant: TestTenant, key: PrivateKey) -> None:
    client, person = key_client(tenant, public_jwk(key)), tenant.register()
    login = {"client_id": client["id"], "email": person.email, "password": person.password}
    for proof in ({}, {"client_secret": ""}, {"client_secret": "ics_x"}):
        response = Api().post("/uflow/auth/enduser/login", {**login, **proof})
        assert response.status_code in (400, 401)
        assert "access_token" not in response.json()


@pytest.mark.parametrize("grant_types", [["authorization_code"], ["refresh_token"]])
def test_grant_types_of_client_are_enforced(tenant: TestTenant, grant_types: list[str]) -> None:
    client = make_client(tenant, grant_types=grant_types)
    response = Api().post(PATH, **form(grant_type="client_credentials"), headers=basic(client))
    assert (response.status_code, response.json()["error"]) == (400, "unauthorized_client")


def test_refresh_requires_the_grant_type(tenant: TestTenant) -> None:
    client, person = make_client(tenant, first_party=True), tenant.register()
    login = {"client_id": client["id"], "email": person.email, "password": person.password}
    login["client_secret"] = client["client_secret"]
    pair = Api().post("/uflow/auth/enduser/login", login).json()
    tenant.api.patch(path(tenant, client["id"]), {"grant_types": ["authorization_code"]})
    refresh = form(grant_type="refresh_token", refresh_token=pair["refresh_token"])
    assert Api().post(PATH, **refresh, headers=basic(client)).json()["error"] == "unauthorized_client"
    tenant.api.patch(path(tenant, client["id"]), {"grant_types": []})
    assert Api().post(PATH, **refresh, headers=basic(client)).status_code == 200
    assert own_token(client)


# --- keys that the client publishes ----------------------------------------------------------------------------------


class Publisher:
    """A client's web server with its key set."""

    server: ThreadingHTTPServer

    def __init__(self) -> None:
        self.body: bytes = b"{}"
        self.status = 200
        self.headers: dict[str, str] = {}
        self.requests = 0
        self.delay = 0.0
        self.url = ""

    def publish(self, *keys: dict[str, Any]) -> None:
        self.body = json.dumps(key_set(*keys)).encode()


@contextmanager
def publisher() -> Iterator[Publisher]:
    state = Publisher()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests += 1
            time.sleep(state.delay)
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(state.body)))
            self.end_headers()
            self.wfile.write(state.body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    state.server, state.url = server, f"http://127.0.0.1:{server.server_port}/jwks"
    try:
        with override_settings(CLIENT_ALLOWED_NETWORKS=["127.0.0.0/8"], CLIENT_PLAIN_HTTP=True):
            yield state
    finally:
        server.shutdown()
        server.server_close()


def test_published_keys_are_fetched_once(tenant: TestTenant, key: PrivateKey) -> None:
    with publisher() as host:
        host.publish(public_jwk(key, kid="a"), {"kty": "unknown"})
        client = key_client(tenant, jwks_uri=host.url)
        for _ in range(3):
            stated = assertion(key, client["id"], issuer(tenant), headers={"kid": "a"})
            assert post(stated).status_code == 200
        assert host.requests == 1


def test_unknown_kid_is_fetched_once_a_minute(tenant: TestTenant, key: PrivateKey) -> None:
    with publisher() as host:
        host.publish(public_jwk(key, kid="a"))
        client, rotated = key_client(tenant, jwks_uri=host.url), new_key()
        assert post(assertion(key, client["id"], issuer(tenant), headers={"kid": "a"})).status_code == 200
        host.publish(public_jwk(rotated, kid="b"))
        for _ in range(3):
            assert post(assertion(rotated, client["id"], issuer(tenant), headers={"kid": "b"})).status_code == 401
        assert host.requests == 1
        _a_minute_later()
        assert post(assertion(rotated, client["id"], issuer(tenant), headers={"kid": "b"})).status_code == 200
        assert post(assertion(key, client["id"], issuer(tenant), headers={"kid": "a"})).status_code == 401
        assert host.requests == 2


def test_keys_from_before_work_while_the_host_fails(tenant: TestTenant, key: PrivateKey) -> None:
    with publisher() as host:
        host.publish(public_jwk(key, kid="a"))
        client = key_client(tenant, jwks_uri=host.url)
        assert post(assertion(key, client["id"], issuer(tenant), headers={"kid": "a"})).status_code == 200
        host.status = 500
        _a_minute_later()
        assert post(assertion(key, client["id"], issuer(tenant), headers={"kid": "x"})).status_code == 401
        assert post(assertion(key, client["id"], issuer(tenant), headers={"kid": "a"})).status_code == 200
        assert host.requests == 2


def _a_minute_later() -> None:
    from userflow.sessions import published_keys

    for entry in published_keys._published.values():
        entry.tried_at -= published_keys.AGAIN_SECONDS


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (200, b"", {}),
        (200, b"not json", {}),
        (200, b"[]", {}),
        (200, b'{"keys": []}', {}),
        (200, b" " * 70_000, {}),
        (404, None, {}),
        (302, None, {"Location": "/jwks?again"}),
    ],
)
def test_unusable_key_set_rejects_the_client(
    tenant: TestTenant, key: PrivateKey, status: int, body: bytes | None, headers: dict[str, str]
) -> None:
    with publisher() as host:
        host.publish(public_jwk(key))
        host.status, host.headers, host.body = status, headers, host.body if body is None else body
        client = key_client(tenant, jwks_uri=host.url)
        assert post(assertion(key, client["id"], issuer(tenant))).status_code == 401
        assert host.requests == 1


def test_keys_are_not_fetched_from_private_networks(tenant: TestTenant, key: PrivateKey) -> None:
    with publisher() as host:
        host.publish(public_jwk(key))
        client = key_client(tenant, jwks_uri=host.url)
        with override_settings(CLIENT_ALLOWED_NETWORKS=[], CLIENT_PLAIN_HTTP=True):
            assert post(assertion(key, client["id"], issuer(tenant))).status_code == 401
        assert host.requests == 0


def test_slow_host_is_asked_by_one_request(tenant: TestTenant, key: PrivateKey) -> None:
    with publisher() as host:
        host.publish(public_jwk(key))
        host.delay = 0.5
        client = key_client(tenant, jwks_uri=host.url)
        calls = [lambda: post(assertion(key, client["id"], issuer(tenant))) for _ in range(4)]
        assert [response.status_code for response in run_concurrently(calls)] == [200] * 4
        assert host.requests == 1
