"""Tenants with a sign-in domain, and callers of these domains."""

import secrets
from dataclasses import dataclass, field
from typing import Any

from tests.openid.devices import Device
from tests.openid.pages.visitor import Visitor
from tests.openid.relying_party import Application
from tests.userflow.domains.dns_server import DnsServer
from tests.world import Api, TestTenant, assert_created, new_client

DOMAINS = "/uflow/federation/domains"


def verified_domain(tenant: TestTenant, name_server: DnsServer, domain: str | None = None) -> dict[str, Any]:
    """Verify a domain of the tenant; return it as the API does."""
    made = assert_created(tenant.api.post(DOMAINS, {"domain": domain or f"login.{secrets.token_hex(5)}.example"}))
    name_server.records.setdefault(made["record"]["name"], []).append(made["record"]["value"])
    response = tenant.api.post(f"{DOMAINS}/{made['id']}/verify", {})
    assert response.status_code == 200, response.content
    return dict(response.json())


def sign_in_domain(tenant: TestTenant, name_server: DnsServer, domain: str | None = None) -> dict[str, Any]:
    """Make a new domain the tenant's sign-in domain; return it as the API does."""
    made = verified_domain(tenant, name_server, domain)
    response = set_sign_in(tenant, made, True)
    assert response.status_code == 200, response.content
    return dict(response.json())


def set_sign_in(tenant: TestTenant, row: dict[str, Any], on: bool) -> Any:
    return tenant.api.patch(f"{DOMAINS}/{row['id']}", {"sign_in": on})


@dataclass
class ApiAt(Api):
    """A client of the paths at one host."""

    host: str = ""

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        headers = {"Host": self.host, **(options.pop("headers", None) or {})}
        return super().call(method, path, body, headers=headers, **options)


@dataclass
class ApplicationAt(Application):
    """An application that uses a tenant's sign-in domain."""

    host: str = ""
    browser: Api = field(default_factory=ApiAt)

    def __post_init__(self) -> None:
        self.browser = ApiAt(host=self.host)

    @property
    def issuer(self) -> str:
        return ""

    def new_caller(self) -> Api:
        return ApiAt(host=self.host)


@dataclass
class VisitorAt(Visitor):
    """A browser at the pages of a tenant's sign-in domain."""

    host: str = ""

    def __post_init__(self) -> None:
        self.client = new_client(raise_request_exception=False, HTTP_HOST=self.host)

    @property
    def root(self) -> str:
        return ""


@dataclass
class DeviceAt(Device):
    """A device whose application uses a tenant's sign-in domain."""

    host: str = ""

    @property
    def issuer(self) -> str:
        return ""

    def new_caller(self) -> Api:
        return ApiAt(host=self.host)
