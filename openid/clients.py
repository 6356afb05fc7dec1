"""Clients as the OpenID endpoints and Authlib see them."""

from uuid import UUID

from authlib.oauth2.rfc6749 import ClientMixin
from django.db import connection

from tenants.lookup import GONE, TenantContext
from userflow.accounts.grant_types import AUTHORIZATION_CODE, grant_types_in_force
from userflow.accounts.models import CONFIDENTIAL, Client
from userflow.clients.redirects import matches
from userflow.ids import FORM
from userflow.sessions import client_authentication
from userflow.sessions.queries import CLIENT

_FIND_CLIENT = f"SELECT {CLIENT.of('c')} FROM userflow_client c WHERE c.id = %s AND c.tenant_id = %s AND c.active"


def find_client(tenant: TenantContext, client_id: str | UUID | None) -> Client | None:
    """Return the active client of this tenant, or None: another tenant's is as unknown as one that does not exist."""
    if client_id is None or not FORM.fullmatch(str(client_id)):
        return None
    with connection.cursor() as cursor:
        cursor.execute(_FIND_CLIENT, [UUID(str(client_id)), tenant.tenant_id])
        row = cursor.fetchone()
    return None if row is None else CLIENT.row(connection.alias, row)


def find_client_with_tenant(client_id: str | None) -> tuple[Client, TenantContext] | None:
    """Return an active client with its tenant, unless that is deleted."""
    if client_id is None or not FORM.fullmatch(client_id):
        return None
    found = client_authentication.find_client(UUID(client_id))
    if found is None or not found.row.active or found.tenant.status in GONE:
        return None
    return found.row, found.tenant


def may_use(client: Client, grant_type: str) -> bool:
    """Return whether the client may use this grant type."""
    return grant_type in grant_types_in_force(client.grant_types, type_=client.type, scopes=client.scopes)


class ProtocolClient(ClientMixin):  # type: ignore[misc]  # Authlib is not typed
    """A client as Authlib asks about it."""

    def __init__(self, row: Client) -> None:
        self.row = row

    def get_client_id(self) -> str:
        return str(self.row.pk)

    def get_default_redirect_uri(self) -> None:
        """Return none: OpenID Connect requires the parameter (Core section 3.1.2.1)."""

    def get_allowed_scope(self, scope: str) -> str:
        # Scopes are granted by `parameters.granted_scopes`.
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return matches(self.row.redirect_uris, redirect_uri)

    def check_response_type(self, response_type: str) -> bool:
        return may_use(self.row, AUTHORIZATION_CODE)

    def check_grant_type(self, grant_type: str) -> bool:
        return may_use(self.row, grant_type)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return True

    @property
    def confidential(self) -> bool:
        """Whether the client has a secret or key."""
        return self.row.type == CONFIDENTIAL
