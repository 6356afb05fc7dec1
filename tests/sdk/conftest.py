"""The platform at a port of its own, and the tokens that an API gets."""

import secrets
import time
from dataclasses import dataclass
from typing import Any

import jwt
import pytest

from tests.openid.test_foreign_clients import base, issuer_of
from tests.sdk.workspace import Workspace
from tests.userflow.sessions.test_access_tokens import claims_in, signed
from tests.userflow.sessions.test_oauth_libraries import place
from tests.world import PASSWORD, TestTenant, User, assert_created, sign_in_admin

__all__ = ["base", "place"]
PERMISSION = "invoices:read"


@dataclass(frozen=True)
class Case:
    """A request to a protected route, and its response; `token` is None for a request without one."""

    token: str | None
    status: int
    challenge: str | None = 'Bearer error="invalid_token"'


@pytest.fixture
def issuer(base: str, tenant: TestTenant) -> str:
    """The issuer of the tenant's tokens."""
    return issuer_of(base, tenant)


@pytest.fixture
def holder(tenant: TestTenant) -> User:
    """A user of the tenant with the permission."""
    person = tenant.register()
    role = assert_created(
        tenant.api.post("/authmgr/roles", {"name": f"Bookkeeper {person.id}", "permissions": [PERMISSION]})
    )
    bound = tenant.api.post(f"/authmgr/roles/{role['id']}/bindings", {"user_ids": [str(person.id)]})
    assert bound.status_code == 200, bound.content
    return person


@pytest.fixture
def service(tenant: TestTenant) -> str:
    """The name of a service with one credential."""
    name = f"Payments {secrets.token_hex(4)}"
    body = {"name": name, "type": "payment", "base_url": "https://pay.example.com"}
    made = assert_created(tenant.api.post("/exsvc/api/v1/services", body))
    key = {"name": "Live key", "secret": {"key": "sk-0815"}, "metadata": {"region": "eu"}}
    assert_created(tenant.api.post(f"/exsvc/api/v1/services/{made['id']}/credentials", key))
    return name


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """An application of Node.js that has installed the package."""
    return Workspace(tmp_path_factory.mktemp("node"))


@pytest.fixture
def cases(issuer: str, tenant: TestTenant, other_tenant: TestTenant, holder: User) -> dict[str, Case]:
    """Requests to a route that requires the permission."""
    valid = tenant.sign_in(holder)["access_token"]
    claims = claims_in(valid)
    assert claims["iss"] == issuer

    def changed(header: dict[str, Any] | None = None, **fields: Any) -> str:
        return signed({**claims, **fields}, tenant_id=tenant.id, header=header)

    foreign = other_tenant.sign_in(other_tenant.register())["access_token"]
    secretless = jwt.encode(claims, None, algorithm="none", headers={"typ": "at+jwt", "kid": "none"})
    missing = f'Bearer error="insufficient_scope", scope="{PERMISSION}"'
    return {
        "none": Case(None, 401, 'Bearer realm="api"'),
        "valid": Case(valid, 200, None),
        "signed again": Case(changed(), 200, None),
        "without the permission": Case(tenant.sign_in(tenant.register())["access_token"], 403, missing),
        "expired": Case(changed(exp=int(time.time()) - 60), 401),
        "of another tenant": Case(foreign, 401),
        "of an admin": Case(sign_in_admin(tenant.admin.username, PASSWORD)["access_token"], 401),
        "for another audience": Case(changed(aud="https://other.example"), 401),
        "of another issuer": Case(changed(iss=issuer + "x"), 401),
        "of another type": Case(changed({"typ": "JWT"}), 401),
        "bound to a key": Case(changed(cnf={"jkt": "x"}), 401),
        "without a subject": Case(changed(sub=None), 401),
        "unsigned": Case(secretless, 401),
        "no JWT": Case("opaque", 401),
    }


def expected(cases: dict[str, Case]) -> dict[str, tuple[int, str | None]]:
    """The status and challenge of each request."""
    return {name: (case.status, case.challenge) for name, case in cases.items()}
