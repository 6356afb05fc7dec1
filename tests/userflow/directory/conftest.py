"""Directories to synchronise from."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.userflow.directory.entra import Entra
from tests.world import PASSWORD, TestTenant, User
from userflow.accounts.models import EndUser
from userflow.credentials.passwords import hashed
from userflow.directory.models import DirectoryConfig

CONFIGS = "/uflow/directory/configs"


@dataclass
class Directory:
    """A configured directory, used by its tenant's admin."""

    tenant: TestTenant
    made: dict[str, Any]
    mark: str = field(default_factory=lambda: secrets.token_hex(5))

    @property
    def path(self) -> str:
        return f"{CONFIGS}/{self.made['id']}"

    def mail(self, local: str) -> str:
        """Return a unique address."""
        return f"{local}@{self.mark}.example"

    def sync(self, **how: Any) -> dict[str, Any]:
        response = self.tenant.api.post(f"{self.path}/sync", how)
        assert response.status_code == 200, response.content
        return dict(response.json())

    def test(self) -> dict[str, Any]:
        response = self.tenant.api.post(f"{self.path}/test")
        assert response.status_code == 200, response.content
        return dict(response.json())

    def change(self, **members: Any) -> Any:
        return self.tenant.api.put(self.path, members)

    def users(self, **query: Any) -> list[dict[str, Any]]:
        asked = {"tenant_id": str(self.tenant.id), "limit": 100, **query}
        return list(self.tenant.api.get("/uflow/user/enduser/list", asked).json()["users"])

    def total(self) -> int:
        """Return the number of the tenant's users."""
        asked = {"tenant_id": str(self.tenant.id), "limit": 1}
        return int(self.tenant.api.get("/uflow/user/enduser/list", asked).json()["total"])

    def forget_running(self) -> None:
        """Make the run look as if its process had sent no heartbeat for long."""
        DirectoryConfig.objects.filter(pk=self.made["id"]).update(alive_at=now() - timedelta(hours=1))

    def user(self, email: str) -> dict[str, Any]:
        (found,) = self.users(email=email)
        return dict(self.tenant.api.get(f"/uflow/user/enduser/{self.tenant.id}/{found['id']}").json())

    def person(self, email: str) -> User:
        """Return a user of the directory with a session: they have no password here."""
        with in_tenant(self.tenant.id):
            EndUser.objects.filter(email=email).update(password=hashed(PASSWORD))
        return User(UUID(self.user(email)["id"]), email)


def counts(response: dict[str, Any]) -> tuple[int, int, int, int, int, int]:
    """Return found, created, updated, activated, deactivated, skipped."""
    names = ("found", "created", "updated", "activated", "deactivated", "skipped")
    return tuple(response[f"users_{name}"] for name in names)  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def room_for_many(settings: Any) -> None:
    """Raise the limit: the tests' shared tenant has many directories."""
    settings.DIRECTORIES_PER_TENANT = 1000


@pytest.fixture
def entra(settings: Any) -> Iterator[Entra]:
    """A stand-in for Entra ID, as the cloud `standin`."""
    standing_in = Entra()
    settings.DIRECTORY_CLOUDS = {"standin": (standing_in.base, standing_in.base)}
    yield standing_in
    standing_in.end()


@pytest.fixture
def configured() -> Callable[..., Directory]:
    """Configure a directory over the API."""

    def configure(tenant: TestTenant, **members: Any) -> Directory:
        response = tenant.api.post(CONFIGS, {"name": f"Head office {secrets.token_hex(4)}", **members})
        assert response.status_code == 201, response.content
        return Directory(tenant, response.json())

    return configure
