"""APIs in FastAPI, Django and Django REST framework that accept the platform's tokens; they are examples of the README."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import httpx2
import pytest
from fastapi.testclient import TestClient

from identity_sdk import AccessDenied, Verifier
from tests.machine.conftest import ROOT
from tests.sdk.conftest import Case, expected
from tests.sdk.readme import example, names_of
from tests.world import TestTenant, User


def responses(client: httpx2.Client, url: str, cases: dict[str, Case]) -> dict[str, httpx2.Response]:
    headers = {name: {"Authorization": f"Bearer {case.token}"} if case.token else {} for name, case in cases.items()}
    return {name: client.get(url, headers=headers[name]) for name in cases}


def outcomes(responses: dict[str, httpx2.Response]) -> dict[str, tuple[int, str | None]]:
    return {name: (each.status_code, each.headers.get("WWW-Authenticate")) for name, each in responses.items()}


@pytest.mark.parametrize(
    ("language", "heading"), [("python", "FastAPI"), ("python", "Django"), ("typescript", "Express")]
)
def test_protected_route_takes_five_lines(language: str, heading: str) -> None:
    lines = [
        line
        for line in example(language, heading).splitlines()
        if re.search("identity|auth|principal|permission", line)
    ]
    assert 2 < len(lines) <= 5


def test_fastapi_verifies_tokens(issuer: str, tenant: TestTenant, holder: User, cases: dict[str, Case]) -> None:
    with TestClient(names_of(example("python", "FastAPI", issuer=issuer, audience="identity-api"))["app"]) as client:
        found = responses(client, "/invoices", cases)
        assert outcomes(found) == expected(cases)
        assert found["valid"].json() == {"user": str(holder.id), "kind": "end_user", "tenant": str(tenant.id)}
        assert found["expired"].json()["detail"]["code"] == "invalid_token"
        # Swagger UI of the API asks for a token.
        assert client.get("/openapi.json").json()["paths"]["/invoices"]["get"]["security"] == [{"HTTPBearer": []}]


@pytest.fixture
def django_app(issuer: str) -> Iterator[str]:
    command = [sys.executable, "-P", "-m", "tests.sdk.django_app", issuer]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'sdk/python/src'}"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.terminate()


def test_django_verifies_tokens(django_app: str, tenant: TestTenant, holder: User, cases: dict[str, Case]) -> None:
    with httpx2.Client(base_url=django_app) as client:
        for path in ("/django", "/drf"):
            found = responses(client, path, cases)
            assert outcomes(found) == expected(cases), path
            assert found["valid"].json() == {"user": str(holder.id), "kind": "end_user", "tenant": str(tenant.id)}
        assert (
            client.get("/drf", headers={"Authorization": "Basic YTpi"}).headers["WWW-Authenticate"]
            == 'Bearer realm="api"'
        )


def test_verifier_without_keys_returns_503(issuer: str, cases: dict[str, Case]) -> None:
    token = cases["valid"].token
    assert token
    base, _, _ = issuer.partition("/t/")
    for verifier in (
        Verifier("http://127.0.0.1:9/t/x"),
        Verifier(f"{base}/t/unknown"),
        Verifier(issuer, jwks_uri="http://127.0.0.1:9/jwks"),
        Verifier(issuer, jwks_uri=f"{base}/uflow/live"),
    ):
        with pytest.raises(AccessDenied) as denied:
            verifier.verify(token)
        assert (denied.value.status, denied.value.headers) == (503, {"Retry-After": "5"})


def test_verifier_fetches_keys_once(issuer: str, cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = Verifier(issuer, audience="identity-api")
    principal = verifier.verify(str(cases["valid"].token))
    assert "invoices:read" in principal.permissions
    # No request is possible any more.
    monkeypatch.setattr(httpx2.Client, "send", None)
    assert verifier.verify(str(cases["signed again"].token)).id == principal.id
    with pytest.raises(AccessDenied):
        verifier.verify(str(cases["of another tenant"].token))
