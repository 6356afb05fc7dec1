"""Clients as the OpenID endpoints and Authlib see them."""

from uuid import UUID

from authlib.oauth2.rfc6749 import ClientMixin

from identity_platform.postgresql.model_columns import ModelColumns
from tenants.entering import lookup
from tenants.entering.lookup import TenantContext
from tenants.entering.target import TENANT_ALIAS
from tenants.errors import UnknownTenant
from userflow.accounts.client_fields import CONFIDENTIAL
from userflow.accounts.grant_types import AUTHORIZATION_CODE, may_use
from userflow.accounts.models import TenantClient
from userflow.clients.redirects import matches
from userflow.ids import FORM
from userflow.sessions.client_authentication import KnownClient

CLIENT = ModelColumns(TenantClient)
_FIND_CLIENT = f"SELECT {CLIENT.of('c')} FROM userflow_tenantclient c WHERE c.id = %s AND c.active"
_CLIENT_AND_TENANT = f"""
SELECT {lookup.RECORD_COLUMNS}, c.id IS NOT NULL, {CLIENT.of("c")}
FROM {lookup.RECORD_TABLE} r LEFT JOIN userflow_tenantclient c ON c.id = %s
"""


def find_client(tenant: TenantContext, client_id: str | UUID | None) -> TenantClient | None:
    """Return the active client of this tenant, or None: another tenant's is as unknown as one that does not exist."""
    if client_id is None or not FORM.fullmatch(str(client_id)):
        return None
    row = lookup.fetch_at(tenant.target, tenant.tenant_id, _FIND_CLIENT, [UUID(str(client_id))])
    return None if row is None else CLIENT.row(TENANT_ALIAS, row)


def find_client_with_tenant(client_id: str | None) -> tuple[TenantClient, TenantContext] | None:
    """Return an active client with its tenant, unless that is deleted."""
    if client_id is None or not FORM.fullmatch(client_id):
        return None
    tenant_id = lookup.tenant_of_client(UUID(client_id))
    if tenant_id is None:
        return None
    try:
        tenant, (exists, *columns) = lookup.read_with_record(tenant_id, _CLIENT_AND_TENANT, [UUID(client_id)])
    except UnknownTenant:
        exists, columns = False, []
    if not exists:
        lookup.forget_client(UUID(client_id))
        return None
    client = CLIENT.row(TENANT_ALIAS, columns)
    return (client, tenant) if client.active else None


class ProtocolClient(ClientMixin):  # type: ignore[misc]  # Authlib is not typed
    """A client as Authlib asks about it."""

    def __init__(self, client: TenantClient | KnownClient) -> None:
        self.client = client

    def get_client_id(self) -> str:
        return str(self.client.id)

    def get_default_redirect_uri(self) -> None:
        """Return none: OpenID Connect requires the parameter (Core section 3.1.2.1)."""

    def get_allowed_scope(self, scope: str) -> str:
        # Scopes are granted by `parameters.granted_scopes`.
        return scope or ""

    @property
    def requires_pkce(self) -> bool:
        """Whether an authorization request of the client needs PKCE: always that of a public one."""
        return not isinstance(self.client, TenantClient) or self.client.type != CONFIDENTIAL or self.client.require_pkce

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        # At the authorization endpoint only: a code's address is compared with the one of its request.
        return isinstance(self.client, TenantClient) and matches(self.client.redirect_uris, redirect_uri)

    def check_response_type(self, response_type: str) -> bool:
        return self.check_grant_type(AUTHORIZATION_CODE)

    def check_grant_type(self, grant_type: str) -> bool:
        return may_use(self.client, grant_type)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return True
