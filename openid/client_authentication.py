"""Authentication of clients at the OpenID endpoints of their tenant: one function for all of them (RFC 6749 section 2.3)."""

from collections.abc import Mapping
from dataclasses import dataclass

from rest_framework.request import Request

from tenants.lookup import TenantContext
from userflow.accounts.models import Client
from userflow.oauth_errors import InvalidClient
from userflow.sessions.client_authentication import KnownClient, authenticate_client
from userflow.sessions.views import stated_client


@dataclass(frozen=True, slots=True)
class AuthenticatedClient:
    """An active client of the tenant that has authenticated as it is registered to; a public one by its id."""

    row: Client
    known: KnownClient


def authenticate_at(request: Request, body: Mapping[str, object], tenant: TenantContext) -> AuthenticatedClient:
    """Return the client of a call to an endpoint of this tenant.

    Raises InvalidClient (also for a client of another tenant, and for a method other than the registered one),
    InvalidRequest (two methods at once), TooManyFromAddress, AssertionsUnavailable, ClientKeysBusy.
    """
    client_id, credential = stated_client(request, body)
    if client_id is None:
        raise InvalidClient
    known = authenticate_client(client_id=client_id, credential=credential)
    if known.tenant.tenant_id != tenant.tenant_id:
        raise InvalidClient
    return AuthenticatedClient(known.row, known)
