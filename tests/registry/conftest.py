"""What the registry's tests act with: calls at its paths, callers of every kind, and tenants with calls to spare."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest

from tenants.context import in_tenant
from tests.registry.processes import Server
from tests.world import Api, TestTenant, build_tenant, populate, seconds_left_in_window
from userflow.accounts.models import Role, RoleBinding

SERVICES = "/exsvc/api/v1/services"


def some_name(what: str = "service") -> str:
    """A name that no other test has."""
    return f"{what} {secrets.token_hex(6)}"


def new_service(**members: Any) -> dict[str, Any]:
    """A body that creates a service."""
    return {"name": some_name(), "type": "payment", "base_url": "https://api.example.com/v1", **members}


@dataclass(frozen=True)
class Registry:
    """The registry as one caller sees it."""

    api: Api

    def create(self, **members: Any) -> dict[str, Any]:
        """A new service's record."""
        response = self.api.post(SERVICES, new_service(**members))
        assert response.status_code == 201, response.content
        return dict(response.json())

    def bind(self, service: dict[str, Any], secret: Any = "s3cret", **members: Any) -> dict[str, Any]:
        """A new credential's record."""
        response = self.api.post(credentials_of(service), {"name": some_name("key"), "secret": secret, **members})
        assert response.status_code == 201, response.content
        return dict(response.json())

    def read(self, service: dict[str, Any], **query: Any) -> dict[str, Any]:
        """The credentials of a service."""
        response = self.api.get(credentials_of(service), query)
        assert response.status_code == 200, response.content
        return dict(response.json())


def at(service: dict[str, Any]) -> str:
    """A service's path."""
    return f"{SERVICES}/{service['id']}"


def credentials_of(service: dict[str, Any]) -> str:
    """The path of a service's credentials."""
    return f"{at(service)}/credentials"


def credential_at(service: dict[str, Any], credential: dict[str, Any]) -> str:
    """A credential's path."""
    return f"{credentials_of(service)}/{credential['id']}"


def as_client(tenant: TestTenant, *scopes: str, granted: tuple[str, ...] | None = None) -> Api:
    """The door with the token of an application that asked for these scopes (and holds `granted`, if that is more)."""
    body = {"name": some_name("client"), "type": "confidential", "scopes": list(granted or scopes)}
    made = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body)
    assert made.status_code == 201, made.content
    proof = {name: made.json()[name] for name in ("client_id", "client_secret")}
    grant = {"grant_type": "client_credentials", "scope": " ".join(scopes), **proof}
    token = Api().post("/authmgr/token", grant)
    assert token.status_code == 200, token.content
    return Api(token=token.json()["access_token"])


def as_end_user(tenant: TestTenant, *permissions: str) -> Api:
    """The door with the token of an end user whose role holds these permissions."""
    person = tenant.register()
    with in_tenant(tenant.id):
        role = Role.objects.create(name=some_name("role"), permissions=list(permissions))
        RoleBinding.objects.create(user_id=person.id, role=role)
    return tenant.as_user(person)


@pytest.fixture(scope="module")
def tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A tenant that the tests of a file share: those of all files together would spend its hundred calls of a minute."""
    with django_db_blocker.unblock():
        return populate(build_tenant("tenant"))


@pytest.fixture(scope="module")
def other_tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A second one."""
    with django_db_blocker.unblock():
        return populate(build_tenant("other"))


def with_room(new_tenant: Callable[[], TestTenant], seconds: int) -> TestTenant:
    """A tenant whose window of calls has just begun, or lasts for so long."""
    while seconds_left_in_window(f"tenant:{(made := new_tenant()).id}", 60) < seconds:
        pass
    return made


def lasting(caller: Callable[[], Api], seconds: int) -> Api:
    """A caller who counts for itself (`registry.limits`), and whose window of calls lasts for so long."""
    while True:
        api = caller()
        claims = jwt.decode(str(api.token), options={"verify_signature": False})
        if seconds_left_in_window(f"{claims['kind']}:{claims['tenant_id']}:{claims['sub']}", 60) >= seconds:
            return api


@pytest.fixture
def registry(new_tenant: Callable[[], TestTenant]) -> Registry:
    """The registry of a tenant of the test's own, seen by its admin: the whole limit is there to spend."""
    return Registry(new_tenant().api)


@pytest.fixture
def other_registry(new_tenant: Callable[[], TestTenant]) -> Registry:
    """That of a second tenant."""
    return Registry(new_tenant().api)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`serve(workers=2, NAME="value")` starts the platform as processes of its own on this test's databases."""
    started: list[Server] = []

    def start(*, workers: int = 1, **more: str) -> Server:
        server = Server(tmp_path / f"server-{len(started)}.log", workers, **more)
        started.append(server)
        server.wait()
        return server

    yield start
    for server in started:
        server.end()
