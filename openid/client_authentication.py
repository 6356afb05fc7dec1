"""Endpoints of a tenant's issuer for its clients, which authenticate themselves (RFC 6749 section 2.3)."""

from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID

from identity_platform.api.errors import TooManyRequests
from identity_platform.api.parsers import OAuthFormParser
from identity_platform.api.views import ApiViewSet, Arguments, Shape
from openid.tenant_of_request import address_first, is_address_of
from tenants.errors import TenantBusy, UnknownTenant
from userflow.oauth_errors import InvalidClient, InvalidRequest
from userflow.sessions.client_authentication import KnownClient, StoredClient, authenticate_client, find_client
from userflow.sessions.view_sets import PublicViewSet
from userflow.sessions.views import stated_client

# Of every endpoint here.
CLIENT_ERRORS: Final = (InvalidRequest, InvalidClient, UnknownTenant, TenantBusy, TooManyRequests)


class ClientEndpoint(PublicViewSet):
    parser_classes = [OAuthFormParser]


def authenticate_at(
    view: ApiViewSet, shape: Shape, read: Callable[[Arguments, UUID], StoredClient | None] | None = None
) -> tuple[KnownClient, Arguments]:
    """Return the active client of a call to an endpoint of its tenant, authenticated as registered, and the fields of the body.

    `read` reads the client with what else the request needs. Raises UnknownTenant, ValidationFailed, InvalidClient (also for
    a client of another tenant, and for a method other than the registered one), InvalidRequest (two methods at once),
    TooManyFromAddress, AssertionsUnavailable, ClientKeysBusy.
    """
    request = view.request
    with address_first(request._request):
        sent = view.valid(shape)
        client_id, credential = stated_client(request, sent)
        if client_id is None:
            raise InvalidClient
        read_client = find_client if read is None else partial(read, sent)
        known = authenticate_client(client_id=client_id, credential=credential, read=read_client)
        if not is_address_of(request._request, known.tenant):
            raise InvalidClient
    return known, sent
