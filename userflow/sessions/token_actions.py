"""Issue clients' own tokens; revoke and introspect tokens."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from identity_platform.audit.origin import set_actor
from identity_platform.audit.writer import record_for_tenant
from tenants.entering import lookup
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.errors import TenantSuspended, UnknownTenant
from tenants.states import Purpose
from userflow.accounts import principals
from userflow.accounts.client_records import CLIENTS
from userflow.accounts.grant_types import CLIENT_CREDENTIALS
from userflow.accounts.principals import EMAIL_SCOPE, GROUPS_SCOPE, ROLES_SCOPE, Claims, Principal, moment, reveals
from userflow.oauth_errors import InvalidScope, InvalidTarget, UnauthorizedClient
from userflow.sessions import issue, refresh
from userflow.sessions import verify as state
from userflow.sessions.client_authentication import (
    Credential,
    KnownClient,
    StoredClient,
    authenticate_client,
    client_of_row,
    find_client,
)
from userflow.sessions.ending import end_sessions
from userflow.sessions.issue import TokenPair
from userflow.sessions.models import TenantRevokedToken
from userflow.sessions.queries import INTROSPECTION, STORED_CLIENT_WIDTH
from userflow.sessions.sender_constraint import binding_of, token_type_of
from userflow.sessions.token_classes import InvalidToken, claims_of, may_use_platform, verified_claims

# Claims that introspection returns as they are (RFC 7662 section 2.2, RFC 9449 section 6.2, RFC 8705 section 3.2).
_CLAIMS = ("exp", "iat", "nbf", "sub", "aud", "iss", "jti", "acr", "auth_time", "cnf")
INACTIVE: dict[str, object] = {"active": False}


def issue_client_token(
    *, client: KnownClient, scope: str | None, audiences: tuple[str, ...] = (), binding: str = ""
) -> dict[str, object]:
    """Return the response with a confidential client's own access token (RFC 6749 section 4.4).

    `scope` is separated by blanks; without it the token has all scopes of the client. `audiences` are those that the client
    may ask for; without one the token is for the platform's API. It is bound to `binding`
    (`sender_constraint.presented_binding`). Raises UnauthorizedClient (a public client, one without this grant type, or a
    suspended tenant: the client has authenticated, so it may know), InvalidScope, InvalidTarget (the client has other
    audiences only), DpopProofInvalid and InvalidRequest (the client gets bound tokens only), TenantBusy.
    """
    if not client.confidential:
        raise UnauthorizedClient("A public client cannot speak for itself: only confidential ones have this grant.")
    client.check_grant_type(CLIENT_CREDENTIALS)
    client.check_binding(binding)
    with _suspension_told():
        client.tenant.check(Purpose.READ)
    if not audiences and not may_use_platform(client.audiences):
        raise InvalidTarget
    requested = client.scopes if scope is None else tuple(dict.fromkeys(scope.split()))
    if not set(requested) <= set(client.scopes):
        raise InvalidScope
    token, seconds = issue.client_token(
        client_id=client.id,
        generation=client.generation,
        scopes=requested,
        audiences=audiences,
        tenant=client.tenant,
        binding=binding,
        longest=client.access_token_seconds,
        algorithm=client.access_token_signed_response_alg,
    )
    set_actor(principals.CLIENT, str(client.id), client.id)
    with _suspension_told(), in_tenant(client.tenant.tenant_id, Purpose.SIGN_IN):
        record_for_tenant("client.signed_in", target=("client", client.id))
    token_type = token_type_of(binding)
    response: dict[str, object] = {"access_token": token, "token_type": token_type, "expires_in": seconds}
    return {**response, "scope": " ".join(requested)} if requested else response


@contextmanager
def _suspension_told() -> Iterator[None]:
    """Turn TenantSuspended into an OAuth error, for callers that hold a secret or a token of the tenant."""
    try:
        yield
    except TenantSuspended as problem:
        raise UnauthorizedClient(because=problem) from problem


def granted_scope(pair: TokenPair) -> str:
    """Return the permissions of a pair's access token as a scope."""
    return " ".join(claims_of(pair.access_token)["permissions"])


def revoke_token(
    *,
    token: str,
    client_id: str | None = None,
    credential: Credential | None = None,
    client: KnownClient | None = None,
) -> None:
    """Revoke a token (RFC 7009). A user's token ends the whole session, a client's own only itself.

    `client` is the client if it has authenticated in another way. A token that is unknown, expired or revoked is no error.
    Raises InvalidClient, UnauthorizedClient (another client's token, a suspended tenant), TenantBusy.
    """
    if client is None and client_id:
        client = authenticate_client(client_id=client_id, credential=credential)
    claims = _claims(token, unused=False)
    if claims is None:
        return
    bound = claims.get("client_id")
    if client is None and bound:
        authenticate_client(client_id=bound, credential=None)
    elif client is not None and str(client.id) != bound:
        raise UnauthorizedClient("This token was not issued to this client.")
    set_actor(claims["kind"], claims["sub"])
    if claims["kind"] == principals.CLIENT:
        with _suspension_told():
            lookup.find(UUID(claims["tenant_id"])).check(Purpose.READ)
        revoke_client_token(claims)
        return
    realm, tenant_id = issue.realm_of(claims["kind"]), UUID(claims["tenant_id"]) if claims.get("tenant_id") else None
    with _suspension_told(), realm.entered(tenant_id), realm.atomic():
        if end_sessions(realm, user_id=UUID(claims["sub"]), session_id=UUID(claims["sid"]), reason="revoked"):
            realm.record("session.revoked", target=("session", claims["sid"]), tenant_id=tenant_id)


def revoke_client_token(claims: Claims) -> None:
    """Reject the client's access token with these claims from the next request on."""
    expires_at, tenant_id = moment(claims["exp"]), UUID(claims["tenant_id"])
    assert expires_at is not None  # a verified token always has one
    with in_tenant(tenant_id), tenant_atomic():
        TenantRevokedToken.objects.bulk_create(
            [TenantRevokedToken(jti=claims["jti"], expires_at=expires_at)], ignore_conflicts=True
        )
        record_for_tenant("client_token.revoked", target=("client", claims["sub"]))


def end_client_tokens(*, principal: Principal, everywhere: bool) -> None:
    """End the token of the call, or with `everywhere` all of the client's own tokens."""
    if not everywhere:
        revoke_client_token(principal.claims)
        return
    tenant_id = principal.tenant_id
    assert tenant_id is not None  # clients have one
    with CLIENTS.changing(tenant_id, principal.id) as client:
        if client is not None:
            client.generation += 1
            client.save(update_fields=["generation"])
        with in_tenant(tenant_id):
            record_for_tenant("client.tokens_ended", target=("client", principal.id))


class TokenOfClient:
    """Reads the state of an access token in the statement that reads the client which asks about it."""

    def __init__(self) -> None:
        # None if it was not read: of another tenant, or no access token of an end user or a client.
        self.stored: state.StoredState | None = None

    def read_client(self, token: str, client_id: UUID) -> StoredClient | None:
        """Return the client, for `authenticate_client`, and note the state of the token. Raises as `find_client`."""
        try:
            claims = verified_claims(token)
        except InvalidToken:
            return find_client(client_id)
        tenant_id = lookup.tenant_of_client(client_id)
        of_tenant = claims["kind"] in (principals.END_USER, principals.CLIENT)
        if tenant_id is None or not of_tenant or str(tenant_id) != claims.get("tenant_id"):
            return find_client(client_id)
        values = {name: claims.get(name) for name in ("client_id", "sid", "sub", "jti")} | {"caller_id": client_id}
        try:
            tenant, row = lookup.read_with_record(tenant_id, INTROSPECTION, values)
        except UnknownTenant:
            lookup.forget_client(client_id)
            return None
        self.stored = state.StoredState(tenant, row[STORED_CLIENT_WIDTH:])
        return client_of_row(tenant, row[:STORED_CLIENT_WIDTH])


def introspect_token(
    *, token: str, by: KnownClient | Principal, stored: state.StoredState | None = None
) -> dict[str, object]:
    """Return the state of a token (RFC 7662 section 2.2), for clients and admins of its tenant and for operators.

    `stored` is its state if `TokenOfClient` has read it. Everything else is `{"active": false}`, and so is a token of a session
    below the level that the policy in force requires. A third-party application's token shows address, roles and groups only
    with the scopes of these names. Raises TenantBusy.
    """
    claims = _claims(token, unused=True)
    if claims is None or not _may_know(by, claims):
        return INACTIVE
    try:
        principal = state.principal_of(claims, stored=stored)
    except (state.SessionInactive, TenantSuspended, UnknownTenant, ValueError):
        return INACTIVE
    if not principal.meets_policy():
        return INACTIVE
    user, grant = principal.user, principal.grant
    in_groups = principal.kind == principals.END_USER and reveals(grant, GROUPS_SCOPE)
    fields = {
        "active": True,
        "scope": " ".join(principal.grant.scopes if principal.grant else sorted(principal.permissions)) or None,
        "client_id": principal.client_id,
        "username": user.get("username") or user.get("email") if reveals(grant, EMAIL_SCOPE) else None,
        "token_type": _token_type(claims),
        **{name: claims.get(name) for name in _CLAIMS},
        "kind": principal.kind,
        "tenant_id": principal.tenant_id,
        "sid": principal.session_id,
        "roles": principal.roles if reveals(grant, ROLES_SCOPE) else None,
        "groups": principal.groups if in_groups else None,
        "permissions": sorted(principal.permissions),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _token_type(claims: Claims) -> str:
    if "jti" not in claims:
        return "refresh_token"
    return token_type_of(binding_of(claims.get("cnf")))


def _may_know(by: KnownClient | Principal, claims: Claims) -> bool:
    if isinstance(by, StoredClient):
        return str(by.tenant.tenant_id) == claims.get("tenant_id")
    if by.kind == principals.OPERATOR:
        return True
    return by.kind in (principals.ADMIN, principals.CLIENT) and str(by.tenant_id) == claims.get("tenant_id")


def _claims(token: str, *, unused: bool) -> Claims | None:
    """Return the claims of an access or refresh token, or None for any other string."""
    with suppress(InvalidToken):
        return verified_claims(token)
    with suppress(InvalidToken, UnknownTenant):
        return refresh.claims_of_refresh_token(token, unused=unused)
    return None
