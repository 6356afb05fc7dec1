"""Rows of a tenant for the ids in a path, so that fuzzed requests get past 404."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID, uuid4

from django.utils.timezone import now

from registry.actions import create_credential, create_service
from tenants.entering.context import in_tenant
from tests.world import PASSWORD, TestTenant
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION
from userflow.accounts.principals import OPERATOR, Principal
from userflow.accounts.session_models import EndUserSession
from userflow.admins.actions import create_admin_user
from userflow.clients.actions import create_client
from userflow.directory.actions import create_directory
from userflow.directory.models import DirectoryConfig
from userflow.domains.actions import add_domain
from userflow.events.models import WebhookEndpoint
from userflow.groups.actions import create_group
from userflow.invitations.actions import invite
from userflow.roles.actions import create_role
from userflow.webhooks.actions import create_endpoint


def root() -> Principal:
    """Return an operator with every permission, verified now."""
    return Principal(OPERATOR, UUID(int=1), None, None, None, (), frozenset(EVERY_PERMISSION), auth_time=now())


def _name() -> str:
    return f"n-{secrets.token_hex(6)}"


def _client(tenant: TestTenant) -> UUID:
    return create_client(tenant_id=tenant.id, by=root(), name=_name(), type="confidential")[0].pk


def _service(tenant: TestTenant) -> UUID:
    base = "https://api.example.com"
    return create_service(tenant_id=tenant.id, name=_name(), type="payment", base_url=base).pk


def _session(tenant: TestTenant) -> UUID:
    person = tenant.register()
    tenant.sign_in(person)
    with in_tenant(tenant.id):
        return EndUserSession.objects.get(user_id=person.id).pk


def _directory(tenant: TestTenant) -> UUID:
    DirectoryConfig.objects.filter(tenant_id=tenant.id).delete()  # a tenant has few
    entra = {"directory_tenant_id": str(uuid4()), "application_id": str(uuid4()), "secret": "s3cret"}
    return create_directory(tenant_id=tenant.id, by=root(), kind="entra_id", name=_name(), **entra).config.pk


def _endpoint(tenant: TestTenant) -> UUID:
    with in_tenant(tenant.id):
        WebhookEndpoint.objects.all().delete()  # a tenant has few
    return create_endpoint(tenant_id=tenant.id, url="https://93.184.216.34/hooks", events=["*"])[0].pk


def _admin(tenant: TestTenant) -> UUID:
    name = _name()
    return create_admin_user(tenant_id=tenant.id, username=name, email=f"{name}@example.com", password=_name())[0].pk


_ROWS: Final[Mapping[str, Callable[[TestTenant], Any]]] = {
    "tenant_id": lambda tenant: tenant.id,
    "slug": lambda tenant: tenant.slug,
    "client_id": _client,
    "user_id": lambda tenant: tenant.register().id,
    "group_id": lambda tenant: create_group(tenant_id=tenant.id, by=root(), name=_name()).pk,
    "role_id": lambda tenant: create_role(tenant_id=tenant.id, by=root(), name=_name()).pk,
    "session_id": _session,
    "service_id": _service,
    "config_id": _directory,
    "domain_id": lambda tenant: add_domain(tenant_id=tenant.id, by=root(), domain=f"{_name()}.example").pk,
    "endpoint_id": _endpoint,
    "invitation_id": lambda tenant: (
        invite(by=root(), tenant_id=tenant.id, email=f"{_name()}@example.com", kind="end_user").row.pk
    ),
}


def fields_for(path: str, tenant: TestTenant) -> dict[str, Any]:
    """Return values for fields of a body and of a query: a new user, and the client that the user signs in through."""
    if path.startswith(("/uflow/admin/users/", "/webauthn/admin/")):
        return {"user_id": str(_admin(tenant))}
    if path == "/uflow/admin/auth/login":
        return {"username": tenant.admin.username, "password": PASSWORD}
    person = tenant.register()
    return {
        "tenant_id": str(tenant.id),
        "client_id": str(tenant.client_id),
        "user_id": str(person.id),
        "user_ids": [str(person.id)],
        "email": person.email,
        "password": PASSWORD,
        "current_password": PASSWORD,
        "scope": "services:read",
        "resource": "services",
    }


def ids_for(path: str, tenant: TestTenant) -> dict[str, str]:
    """Return an id of a new row of the tenant for each name in the path that rows can be made for."""
    if path.startswith("/uflow/admin/users/"):
        return {"user_id": str(_admin(tenant))}
    ids = {name: str(make(tenant)) for name, make in _ROWS.items() if f"{{{name}}}" in path}
    if "{credential_id}" in path:
        service = UUID(ids["service_id"])
        ids["credential_id"] = str(
            create_credential(tenant_id=tenant.id, service_id=service, name="live", secret="s").pk
        )
    return ids
