"""Read the state of a token's principal: one statement.

A deactivated user, an ended session, a suspended tenant, a deactivated client and a removed role take effect with the next
request, so nothing is cached. An admin's state, with the tenant, is one statement on the global database. That of an end user
or a client is one in the tenant's database, which has its tenant and client too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.conf import settings

from identity_platform.postgresql.statements import fetch_row
from tenants.addresses.issuers import issuer_of
from tenants.entering import lookup
from tenants.entering.context import current_tenant
from tenants.errors import TenantMismatch, TenantSuspended, UnknownTenant
from tenants.states import Purpose
from userflow.accounts import principals
from userflow.accounts.principals import Claims, Grant, Principal, UserFields, moment
from userflow.accounts.security_profiles import profile_of
from userflow.accounts.session_models import EndUserSession
from userflow.accounts.session_policy import acr_of, required_acr, session_limits
from userflow.credentials.email_verification import is_required
from userflow.ids import FORM
from userflow.sessions import client_uses
from userflow.sessions.client_authentication import KnownClient
from userflow.sessions.key_pairs import ES256
from userflow.sessions.queries import (
    ADMIN_STATE,
    CLIENT_STATE,
    CLIENT_STATE_WIDTH,
    END_USER_STATE,
    END_USER_STATE_AND_SESSION,
    STATE_WIDTH,
    groups_in,
    roles_in,
    session_with_user,
)
from userflow.sessions.sender_constraint import binding_of
from userflow.sessions.token_classes import is_for_platform, may_use_platform
from userflow.sessions.userinfo_audience import is_userinfo, present_audiences

# Scopes that every client may ask for; the others are those of the client.
OPENID_SCOPES: Final = frozenset({"openid", "profile", "email", "phone", "groups", "roles", "offline_access"})


class SessionInactive(Exception):
    """The token is genuine, but its session, user, client or tenant is not active any more."""


@lru_cache(maxsize=10_000)  # a token has the same ids in every request
def _uuid(value: str | None) -> UUID | None:
    return UUID(value) if value else None


class StoredState(NamedTuple):
    """What has just been read of a token: its tenant, and the columns of CLIENT_STATE, then those of END_USER_STATE."""

    tenant: lookup.TenantContext
    columns: Sequence[Any]


def principal_of(
    claims: Claims,
    *,
    client: KnownClient | None = None,
    columns: Sequence[Any] | None = None,
    stored: StoredState | None = None,
) -> Principal:
    """Return the principal as stored now. `client` is the client of an end user's session if it was just authenticated.

    `columns` are those of an end user's session if they have just been read in the entered tenant, with `client` if it has one;
    none for an inactive session. `stored` is the state of a token that has just been read.
    Raises SessionInactive when the session has ended or the user or client is deleted or deactivated, TenantSuspended or
    TenantBusy when the tenant may not be read.
    """
    match claims["kind"]:
        case principals.OPERATOR | principals.ADMIN:
            return _admin(claims)
        case principals.END_USER:
            return _end_user(claims, client, columns, stored)
        case principals.CLIENT:
            return _client(claims, stored)
        case _:
            raise SessionInactive


def _admin(claims: Claims) -> Principal:
    lookup.manage()
    row = fetch_row("default", ADMIN_STATE, [claims.get("sid"), claims["sub"]])
    if row is None:
        raise SessionInactive
    age, unused, auth_time, amr, acr, username, email, tenant_id, mfa_methods, roles_text = row[lookup.WIDTH :]
    kind = principals.ADMIN if tenant_id else principals.OPERATOR
    # An admin user never moves to another tenant; a token that names another one was not issued for this database.
    if kind != claims["kind"] or _uuid(claims.get("tenant_id")) != tenant_id:
        raise SessionInactive
    tenant_settings = _checked(lookup.from_row(row[: lookup.WIDTH]), Purpose.INSPECT).settings if tenant_id else {}
    _check_limits(kind, tenant_settings, age=age, unused=unused)
    if "auth_time" not in claims:
        # The console has no token: the stored session says what was verified, with every step-up since.
        claims = {**claims, "auth_time": auth_time, "amr": orjson.loads(amr), "acr": acr}
    roles, permissions = roles_in(roles_text)
    return _principal(
        claims,
        roles,
        permissions,
        tenant_settings,
        user={"username": username, "email": email, "mfa_methods": orjson.loads(mfa_methods)},
    )


def _check_limits(kind: str, tenant_settings: Mapping[str, object], *, age: float, unused: float) -> None:
    if not session_limits(kind, tenant_settings).allow(age=age, unused=unused):
        raise SessionInactive


def _checked(tenant: lookup.TenantContext, purpose: Purpose) -> lookup.TenantContext:
    if tenant.status in lookup.GONE:
        raise SessionInactive
    # Users and admins of a suspended tenant have no access. Only operators inspect it.
    if tenant.status == "suspended":
        raise TenantSuspended
    return lookup.remember(tenant.check(purpose))


class ClientState(NamedTuple):
    """The columns of CLIENT_STATE about a client; without one they are null."""

    active: bool | None = None
    name: str = ""
    project_id: str | None = None
    generation: int = 0
    first_party: bool | None = None
    signs_in_directly: bool | None = None
    access_token_seconds: int | None = None
    access_token_signed_response_alg: str | None = None
    security_profile: str | None = None
    scopes: Collection[str] = ()
    audiences: Collection[str] = ()


def _read(
    claims: Claims, statement: str, values: Mapping[str, object]
) -> tuple[lookup.TenantContext, ClientState, Sequence[Any]]:
    """Return tenant and client of the claims, both in use, and the other columns. Raises as `principal_of`."""
    tenant_id = _uuid(claims.get("tenant_id"))
    if tenant_id is None:
        raise SessionInactive
    try:
        stored_tenant, row = lookup.read_with_record(
            tenant_id, statement, {"client_id": _uuid(claims.get("client_id")), **values}
        )
    except UnknownTenant as problem:
        raise SessionInactive from problem
    return _in_use(claims, stored_tenant, row)


def _in_use(
    claims: Claims, stored_tenant: lookup.TenantContext, row: Sequence[Any]
) -> tuple[lookup.TenantContext, ClientState, Sequence[Any]]:
    tenant = _checked(stored_tenant, Purpose.READ)
    # The issuer changes with the slug. Claims of a refreshed session have none.
    if claims.get("iss", issuer_of(tenant)) != issuer_of(tenant):
        raise SessionInactive
    *client, scopes, audiences = row[:CLIENT_STATE_WIDTH]
    # A deleted client has no row.
    if claims.get("client_id") and not client[0]:
        raise SessionInactive
    lists = (orjson.loads(text) if text else () for text in (scopes, audiences))
    return tenant, ClientState(*client, *lists), row[CLIENT_STATE_WIDTH:]


def _read_session(claims: Claims, statement: str) -> tuple[lookup.TenantContext, ClientState, Sequence[Any]]:
    tenant, limits, columns = _read(claims, statement, {"sid": claims.get("sid"), "sub": claims["sub"]})
    if columns[0] is None:
        raise SessionInactive
    return tenant, limits, columns


def session_of(claims: Claims) -> tuple[Principal, EndUserSession]:
    """Return the principal of an end user's token with its session and user, as stored now. Raises as `principal_of`."""
    principal, columns = principal_and(claims, END_USER_STATE_AND_SESSION)
    return principal, session_with_user(columns)


def principal_and(claims: Claims, statement: str) -> tuple[Principal, Sequence[Any]]:
    """Return the principal of an end user's token, and the further columns of a statement of `end_user_state_and`.

    Raises as `principal_of`.
    """
    tenant, limits, columns = _read_session(claims, statement)
    return _end_user_of(claims, tenant, limits, columns[:STATE_WIDTH]), columns[STATE_WIDTH:]


def _end_user(
    claims: Claims, client: KnownClient | None, columns: Sequence[Any] | None, stored: StoredState | None
) -> Principal:
    if stored is not None:
        tenant, limits, (_, *state) = _in_use(claims, stored.tenant, stored.columns)
        if state[0] is None:
            raise SessionInactive
        return _end_user_of(claims, tenant, limits, state)
    if columns is None:
        return _end_user_of(claims, *_read_session(claims, END_USER_STATE))
    if not columns:
        raise SessionInactive
    tenant = client.tenant if client is not None else current_tenant()
    if str(tenant.tenant_id) != claims.get("tenant_id"):
        raise SessionInactive
    return _end_user_of(claims, tenant, client if client is not None else ClientState(), columns)


def _end_user_of(
    claims: Claims, tenant: lookup.TenantContext, limits: ClientState | KnownClient, columns: Sequence[Any]
) -> Principal:
    """Return the principal of an end user's session, limited by what its client may have."""
    age, unused, email, name, mfa_methods, email_verified, roles_text, groups_text, granted, *given = columns
    _check_limits(principals.END_USER, tenant.settings, age=age, unused=unused)
    roles, permissions = roles_in(roles_text)
    grant = None
    # A session without a grant has all rights of the user: only a client that may sign in by JSON now, or a browser, has one.
    if not granted and claims.get("client_id") and not limits.signs_in_directly:
        raise SessionInactive
    # One from before the client had its security profile, which has not ended yet.
    if profile_of(limits.security_profile).bound_tokens_only and not (granted and given[2]):
        raise SessionInactive
    if granted:
        scopes, audiences, binding = given
        grant = Grant(
            _narrowed(
                scopes_still_allowed(orjson.loads(scopes), limits.scopes),
                # A token without scopes has no claim; claims of a refreshed session have neither it nor an audience.
                claims.get("scope", "").split(" ") if "aud" in claims else None,
            ),
            _narrowed(
                audiences_still_allowed(orjson.loads(audiences), limits.audiences, tenant), _audiences_of(claims)
            ),
            binding,
            bool(limits.first_party),
        )
        # What a confidential client proves may change (`sessions.refresh`): tokens of the former key end with that.
        confirmed = claims.get("cnf")
        if confirmed is not None and binding_of(confirmed) != binding:
            raise SessionInactive
        permissions = grant.allowed(permissions)
        # A token for the platform's API ends with the client's permission to ask for one.
        if is_for_platform(claims) and settings.TOKEN_AUDIENCE not in grant.audiences:
            raise SessionInactive
    return _principal(
        claims,
        roles,
        permissions,
        tenant.settings,
        user={"email": email, "name": name, "mfa_methods": orjson.loads(mfa_methods)},
        groups=groups_in(groups_text),
        must_verify_email=is_required(tenant) and not email_verified,
        grant=grant,
        first_party=grant.first_party if grant is not None else bool(limits.signs_in_directly),
        access_token_seconds=limits.access_token_seconds,
        access_token_alg=limits.access_token_signed_response_alg or ES256,
    )


def _narrowed(granted: Iterable[str], requested: list[str] | None) -> tuple[str, ...]:
    return tuple(name for name in granted if requested is None or name in requested)


def _audiences_of(claims: Claims) -> list[str] | None:
    """Return the audiences of the token, which may be fewer than the session's; claims of a refreshed session have none."""
    audience = claims.get("aud")
    return [audience] if isinstance(audience, str) else audience


def scopes_still_allowed(scopes: Iterable[str], of_client: Collection[str]) -> tuple[str, ...]:
    """Return those of the granted scopes that the client may still ask for."""
    return tuple(scope for scope in scopes if scope in OPENID_SCOPES or scope in of_client)


def audiences_still_allowed(
    audiences: Iterable[str], of_client: Collection[str], tenant: lookup.TenantContext
) -> tuple[str, ...]:
    """Return those of the granted audiences that the client may still ask for, and the tenant's userinfo, which any may."""
    allowed = (name for name in audiences if name in of_client or is_userinfo(name, tenant))
    return present_audiences(allowed, tenant)


def _client(claims: Claims, stored: StoredState | None) -> Principal:
    if not claims.get("client_id") or claims["client_id"] != claims["sub"]:
        raise SessionInactive
    if stored is not None:
        tenant, client, (is_revoked, *_) = _in_use(claims, stored.tenant, stored.columns)
    else:
        tenant, client, (is_revoked,) = _read(claims, CLIENT_STATE, {"jti": claims["jti"]})
    # A user's token ends with the session; a client's own can be revoked one by one.
    if is_revoked or claims.get("gen") != client.generation:
        raise SessionInactive
    if is_for_platform(claims) and not may_use_platform(client.audiences):
        raise SessionInactive
    client_uses.note(UUID(claims["client_id"]))
    granted = frozenset(client.scopes) & frozenset((claims.get("scope") or "").split())
    return _principal(claims, (), granted, tenant.settings, user={"name": client.name, "project_id": client.project_id})


def _principal(
    claims: Claims,
    roles: tuple[str, ...],
    permissions: frozenset[str],
    tenant_settings: Mapping[str, object],
    user: UserFields,
    groups: tuple[str, ...] = (),
    must_verify_email: bool = False,
    grant: Grant | None = None,
    first_party: bool = False,
    access_token_seconds: int | None = None,
    access_token_alg: str = ES256,
) -> Principal:
    amr = tuple(claims.get("amr") or ())
    return Principal(
        kind=claims["kind"],
        id=UUID(claims["sub"]),
        tenant_id=_uuid(claims.get("tenant_id")),
        client_id=_uuid(claims.get("client_id")),
        session_id=_uuid(claims.get("sid")),
        roles=roles,
        permissions=permissions,
        groups=groups,
        must_verify_email=must_verify_email,
        amr=amr,
        acr=claims.get("acr") or acr_of(amr),
        required_acr=required_acr(claims["kind"], tenant_settings),
        auth_time=moment(claims.get("auth_time")),
        claims=claims,
        user=user,
        grant=grant,
        first_party=first_party,
        access_token_seconds=access_token_seconds,
        access_token_alg=access_token_alg,
    )


def tenant_of_call(principal: Principal, requested_tenant_id: UUID | None, header: str | None) -> UUID | None:
    """Return the tenant of a call: the token's, or for an operator the stated one, else the header's, else None.

    Raises TenantMismatch when a tenant's principal states another one, whether or not that exists.
    """
    if principal.tenant_id is not None:
        if requested_tenant_id is not None and requested_tenant_id != principal.tenant_id:
            raise TenantMismatch(requested_tenant_id)
        return principal.tenant_id
    if requested_tenant_id is not None or header is None:
        return requested_tenant_id
    if FORM.fullmatch(header) is None:  # UUID() also takes braces and URNs
        raise ValueError
    return UUID(header)
