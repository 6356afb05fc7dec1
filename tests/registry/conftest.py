"""Calls of the registry, callers of every kind, and tenants whose rate limit is not used up."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest

from tenants.entering.context import in_tenant
from tests.registry.processes import Server
from tests.world import Api, TestTenant, build_tenant, populate, seconds_left_in_window
from userflow.accounts.models import Role, RoleBinding

SERVICES = "/exsvc/api/v1/services"


def some_name(what: str = "service") -> str:
    """A unique name."""
    return f"{what} {secrets.token_hex(6)}"


def new_service(**members: Any) -> dict[str, Any]:
    """A body that creates a service."""
    return {"name": some_name(), "type": "payment", "base_url": "https://api.example.com/v1", **members}


@dataclass(frozen=True)
class Registry:
    """The registry, called by one principal."""

    api: Api

    def create(self, **members: Any) -> dict[str, Any]:
        """Create a service and return its record."""
        response = self.api.post(SERVICES, new_service(**members))
        assert response.status_code == 201, response.content
        return dict(response.json())

    def bind(self, service: dict[str, Any], secret: Any = "s3cret", **members: Any) -> dict[str, Any]:
        """Create a credential and return its record."""
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
    """The registry called by an application with a token of these scopes (and grants of `granted`, if given)."""
    body = {"name": some_name("client"), "type": "confidential", "scopes": list(granted or scopes)}
    made = tenant.api.post(f"/clientms/tenants/{tenant.id}/clients", body)
    assert made.status_code == 201, made.content
    proof = {name: made.json()[name] for name in ("client_id", "client_secret")}
    grant = {"grant_type": "client_credentials", "scope": " ".join(scopes), **proof}
    token = Api().post("/authmgr/token", grant)
    assert token.status_code == 200, token.content
    return Api(token=token.json()["access_token"])


def as_end_user(tenant: TestTenant, *permissions: str) -> Api:
    """The registry called by an end user whose role grants these permissions."""
    person = tenant.register()
    with in_tenant(tenant.id):
        role = Role.objects.create(name=some_name("role"), permissions=list(permissions))
        RoleBinding.objects.create(user_id=person.id, role=role)
    return tenant.as_user(person)


@pytest.fixture(scope="module")
def tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A tenant of this test file: all files together would exceed its hundred calls a minute."""
    with django_db_blocker.unblock():
        return populate(build_tenant("tenant"))


@pytest.fixture(scope="module")
def other_tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A second tenant."""
    with django_db_blocker.unblock():
        return populate(build_tenant("other"))


def with_room(new_tenant: Callable[[], TestTenant], seconds: int) -> TestTenant:
    """A tenant whose rate-limit window has just begun or lasts for this time."""
    while seconds_left_in_window(f"tenant:{(made := new_tenant()).id}", 60) < seconds:
        pass
    return made


def lasting(caller: Callable[[], Api], seconds: int) -> Api:
    """A caller with a limit of its own (`registry.limits`), whose window lasts for this time."""
    while True:
        api = caller()
        claims = jwt.decode(str(api.token), options={"verify_signature": False})
        if seconds_left_in_window(f"{claims['kind']}:{claims['tenant_id']}:{claims['sub']}", 60) >= seconds:
            return api


@pytest.fixture
def registry(new_tenant: Callable[[], TestTenant]) -> Registry:
    """The registry of a new tenant, called by its admin, with an unused limit."""
    return Registry(new_tenant().api)


@pytest.fixture
def other_registry(new_tenant: Callable[[], TestTenant]) -> Registry:
    """The registry of a second new tenant."""
    return Registry(new_tenant().api)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`serve(workers=2, NAME="value")` starts server processes on the databases of this test."""
    started: list[Server] = []

    def start(*, workers: int = 1, **more: str) -> Server:
        server = Server(tmp_path / f"server-{len(started)}.log", workers, **more)
        started.append(server)
        server.wait()
        return server

    yield start
    for server in started:
        server.end()
