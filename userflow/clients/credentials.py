"""Who a client is: by its secret (confidential) or by its id alone (public)."""

from dataclasses import dataclass
from uuid import UUID

import orjson
from django.db import connection

from identity_platform.audit.origin import set_tenant
from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import hash_token, same
from tenants import routes
from tenants.states import Purpose
from userflow.clients.models import CONFIDENTIAL
from userflow.clients.usage import STALE_USE, note_use
from userflow.errors import InvalidClient
from userflow.ids import FORM
from userflow.signin import attempts

_FIND = (
    f"SELECT {routes.COLUMNS}, c.active, c.type, c.scopes::text, c.generation, {STALE_USE.format(client='c')},"
    " c.secret_digest, CASE WHEN c.previous_secret_until > now() THEN c.previous_secret_digest END"
    f" FROM userflow_client c JOIN tenants_tenant t ON t.id = c.tenant_id {routes.JOINS} WHERE c.id = %s"
)


@dataclass(frozen=True, slots=True)
class KnownClient:
    """An active client of an existing tenant that has proven itself as its type requires.

    The tenant's state is not checked: its callers check it once they know that the caller may learn it.
    """

    id: UUID
    route: routes.Route
    confidential: bool
    scopes: tuple[str, ...]
    generation: int


def authenticate_client(*, client_id: str, secret: str | None) -> KnownClient:
    """The client of this id (RFC 6749 section 2.3.1): a confidential one by its secret, a public one without any.

    Refuses with InvalidClient (unknown, inactive, wrong or missing secret, deleted tenant: all alike), TooManyFromAddress.
    """
    attempts.refuse_guessing_address()
    row = None
    if FORM.fullmatch(client_id):
        with connection.cursor() as cursor:
            cursor.execute(_FIND, [client_id])
            row = cursor.fetchone()
    if row is None:
        raise _refused(None)
    active, type_, scopes, generation, stale, digest, previous = row[routes.WIDTH :]
    route = routes.from_row(row[: routes.WIDTH])
    set_tenant(route.tenant_id, UUID(client_id))
    confidential = type_ == CONFIDENTIAL
    if not active or not (_proven(secret, digest, previous) if confidential else secret is None):
        raise _refused(route.tenant_id, client_id)
    if route.status in routes.GONE:
        raise InvalidClient
    routes.remember(route)
    if stale and route.allows(Purpose.READ):
        note_use(UUID(client_id))
    return KnownClient(UUID(client_id), route, confidential, tuple(orjson.loads(scopes)), generation)


def _proven(secret: str | None, *digests: bytes | memoryview | None) -> bool:
    stated = hash_token(secret or "")
    return any(same(stated, bytes(digest)) for digest in digests if digest is not None)


def _refused(tenant_id: UUID | None, client_id: str = "") -> InvalidClient:
    attempts.count_wrong_secret()
    if client_id:
        record_for_platform("client.refused", tenant_id=tenant_id, target=("client", client_id), outcome="refused")
    return InvalidClient()
