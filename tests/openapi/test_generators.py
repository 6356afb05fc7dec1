"""Clients that three generators write from the API document: complete, strictly typed, and working."""

import base64
import re
from typing import Any

import pytest

from tests.mfa.people import new_user
from tests.openapi.document import document
from tests.openapi.generators import Clients
from tests.openid.test_foreign_clients import base, place
from tests.userflow.sessions.clients import make_client
from tests.world import PASSWORD, TestTenant

__all__ = ["base", "place"]
pytestmark = pytest.mark.needs("node")

# Errors in files that a generator copies unchanged into every client.
# exactOptionalPropertyTypes: https://github.com/hey-api/hey-api/issues/2236
OF_HEY_API = {
    "hey_api/client/client.gen.ts TS2379",
    "hey_api/client/utils.gen.ts TS2379",
    "hey_api/core/params.gen.ts TS2379",
    "hey_api/core/pathSerializer.gen.ts TS2379",
    "hey_api/core/serverSentEvents.gen.ts TS2375",
    "hey_api/core/serverSentEvents.gen.ts TS2379",
}
# Its `__exit__(*args: object)` calls that of httpx, whose arguments have narrower types. Not reported yet.
OF_OPENAPI_PYTHON_CLIENT = {"platform_client/client.py arg-type"}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    return Clients(tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def operations() -> set[str]:
    """The ids of all operations."""
    paths = document()["paths"].values()
    return {operation["operationId"] for path in paths for operation in path.values()}


@pytest.fixture
def given(base: str, tenant: TestTenant) -> dict[str, Any]:
    """What an application is given: the platform, a user with a second factor, an admin without one."""
    client = make_client(tenant, first_party=True)
    pair = f"{client['client_id']}:{client['client_secret']}"
    return {
        "base": base,
        "tenant_id": str(tenant.id),
        "client_id": str(tenant.client_id),
        "confidential": client["client_id"],
        "basic": base64.b64encode(pair.encode()).decode(),
        "admin": tenant.admin.username,
        "user": new_user(tenant).enrol_totp().email,
        "password": PASSWORD,
    }


@pytest.mark.parametrize("generator", ["openapi-typescript", "@hey-api/openapi-ts", "openapi-python-client"])
def test_generator_reports_nothing(clients: Clients, generator: str) -> None:
    assert clients.problems[generator] == ""


def test_every_operation_is_generated(clients: Clients, operations: set[str]) -> None:
    types = (clients.folder / "schema.ts").read_text().partition("export interface operations {")[2]
    assert set(re.findall(r"^    (\w+): \{$", types, re.MULTILINE)) == operations
    calls = (clients.folder / "hey_api/sdk.gen.ts").read_text()
    assert set(re.findall(r"^export const (\w+) = <", calls, re.MULTILINE)) == operations
    modules = {path.stem for path in (clients.folder / "platform_client/api").glob("*/*.py")} - {"__init__"}
    assert modules == {re.sub(r"(?=[A-Z])", "_", operation).lower() for operation in operations}


def test_typescript_clients_compile_strictly(clients: Clients) -> None:
    assert clients.compile_typescript() == OF_HEY_API


def test_python_client_compiles_strictly(clients: Clients) -> None:
    assert clients.compile_python() == OF_OPENAPI_PYTHON_CLIENT


@pytest.mark.parametrize("application", ["with_openapi_fetch.ts", "with_hey_api.ts", "with_openapi_python_client.py"])
def test_generated_client_works(clients: Clients, given: dict[str, Any], application: str) -> None:
    seen = clients.run(application, given)
    assert set(seen.pop("methods")) == {"totp", "backup_code"}
    assert seen == {"total": 1, "emails": [given["user"]], "rejected": True}
