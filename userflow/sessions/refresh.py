"""Refreshing a session (RFC 6749 section 6) with rotation and detection of reuse (RFC 9700 section 4.14.2)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.conf import settings
from django.utils.timezone import now

from identity_platform.audit.origin import set_actor
from identity_platform.crypto import SealContext, hash_token, seal, unseal
from identity_platform.postgresql.statements import fetch_row
from tenants.addresses.issuers import issuer_of
from tenants.entering import lookup
from tenants.errors import TenantSuspended, UnknownTenant
from tenants.states import Purpose
from userflow.accounts import principals
from userflow.accounts.grant_types import REFRESH_TOKEN
from userflow.accounts.principals import Claims, Grant, Principal
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.errors import EmailNotVerified, FactorRequired
from userflow.oauth_errors import InvalidGrant, InvalidScope, InvalidTarget
from userflow.sessions import issue, queries
from userflow.sessions import verify as state
from userflow.sessions.client_authentication import Credential, KnownClient, authenticate_client
from userflow.sessions.ending import end_sessions
from userflow.sessions.issue import RefreshedUser, TokenPair
from userflow.sessions.queries import Rights
from userflow.sessions.refresh_tokens import PresentedRefreshToken, new_refresh_token, parse_refresh_token
from userflow.sessions.sender_constraint import binding_of, token_type_of
from userflow.sessions.token_classes import InvalidToken, read_unverified


def refresh_session(
    *,
    refresh_token: str,
    client_id: str | None = None,
    credential: Credential | None = None,
    client: KnownClient | None = None,
    scopes: tuple[str, ...] | None = None,
    audiences: tuple[str, ...] | None = None,
    binding: str = "",
) -> TokenPair:
    """Exchange a refresh token for its successor and a new access token; of some clients the token stays as it is.

    The token is bound to the client it was issued to: a confidential one must authenticate, a public one may send its id.
    `client` is the client if it has authenticated in another way. For a session that OpenID Connect has opened, the access
    token has no more than the session's scopes and audiences, fewer with `scopes` or `audiences`, and a session that is bound
    to a key or certificate needs the same `binding` (RFC 9449 section 5, RFC 8705 section 4). A confidential client may have
    another one: the session follows it, and access tokens that are bound to the former one end.
    The loser of a race within `REFRESH_OVERLAP_SECONDS` gets the winner's refresh token, and an access token of what it asked
    for itself.
    Any other use of a used token, and its use after the successor was used, ends the session: one of the two holders has
    stolen it. The limits and the policy now in force apply, not those of the sign-in. Raises InvalidClient, UnauthorizedClient
    (no such grant type), TenantBusy, InvalidScope, InvalidTarget, DpopProofInvalid and InvalidRequest (the client gets
    bound tokens only), and InvalidGrant, whose cause says that the tenant is suspended if the token is valid.
    """
    if client is None and client_id:
        client = authenticate_client(client_id=client_id, credential=credential)
    try:
        presented = parse_refresh_token(refresh_token)
    except InvalidToken as problem:
        raise InvalidGrant from problem
    try:
        with presented.realm.entered(presented.tenant_id, Purpose.SIGN_IN):
            token = _stored(presented)
            if client is not None and client.id != token.client_id:
                raise InvalidGrant
            if client is None and token.client_id:
                client = authenticate_client(client_id=str(token.client_id), credential=None)
            if client is not None:
                client.check_grant_type(REFRESH_TOKEN)
                client.check_binding(binding)
                if client.gets_bound_tokens_only and not token.binding:
                    raise InvalidGrant(
                        "The session is not bound to a key, and its client requires that. Sign in again."
                    )
            principal = state.principal_of(token.claims(), client=client, columns=token.state)
            set_actor(principal.kind, str(principal.id), principal.client_id)
            # One that has authenticated may change its key (RFC 9449 section 5).
            may_change_key = bool(binding) and client is not None and client.confidential
            if token.binding and token.binding != binding and not may_change_key:
                raise InvalidGrant(
                    "The session is bound to a key. Send a DPoP proof by that key, or its certificate, to the token endpoint."
                )
            about = _about(token, principal)
            if principal.grant is not None:
                key = token.binding and binding
                grant = _narrowed(principal.grant, scopes, audiences, binding=key)
                principal = principal if grant is principal.grant else replace(principal, grant=grant)
            if not principal.meets_policy():
                raise InvalidGrant((EmailNotVerified if principal.must_verify_email else FactorRequired).message)
            kept_token = refresh_token if client is not None and not client.rotates_refresh_tokens else None
            return replace(_renew(presented, token, principal, kept_token=kept_token), about=about)
    except (InvalidToken, state.SessionInactive, UnknownTenant) as problem:
        raise InvalidGrant from problem
    except TenantSuspended as problem:
        raise InvalidGrant(because=problem if _is_valid(presented) else None) from problem


def _narrowed(
    grant: Grant, scopes: tuple[str, ...] | None, audiences: tuple[str, ...] | None, *, binding: str
) -> Grant:
    """Return the grant limited to what was asked for, bound to this key.

    Raises InvalidScope, InvalidTarget (RFC 8707 section 2.2).
    """
    if scopes is not None and not set(scopes) <= set(grant.scopes):
        raise InvalidScope
    if not grant.audiences or (audiences is not None and not set(audiences) <= set(grant.audiences)):
        raise InvalidTarget
    if scopes is None and audiences is None and binding == grant.binding:
        return grant
    return replace(
        grant,
        scopes=grant.scopes if scopes is None else tuple(name for name in grant.scopes if name in scopes),
        audiences=audiences or grant.audiences,
        binding=binding,
    )


def _is_valid(presented: PresentedRefreshToken) -> bool:
    """Return whether a suspended tenant's refresh token would be accepted if the tenant were active."""
    with presented.realm.entered(presented.tenant_id, Purpose.INSPECT):
        valid = presented.realm.refresh_tokens._default_manager.filter(
            digest=presented.digest,
            used_at=None,
            session__user__active=True,
            session__ended_at=None,
            session__expires_at__gt=now(),
        )
        return valid.exists()


class StoredToken(NamedTuple):
    """A refresh token and its session as stored."""

    of_end_user: bool
    # Of an end user: the columns of END_USER_STATE, none if the session is not active.
    state: Sequence[Any] | None
    # Of an end user: the columns of USER, and JSON text.
    user: Sequence[Any]
    id_token_claims: str
    used: bool
    # Times are seconds since 1970.
    issued_at: float
    session_id: UUID
    user_id: UUID
    client_id: UUID | None
    # JSON text.
    amr: str
    acr: str
    auth_time: float
    # Of the browser's session, if that has signed the application in.
    session_created_at: float
    expires_at: float
    binding: str
    tenant_id: UUID | None

    def claims(self) -> Claims:
        """Return the claims that an access token of the session would have, for `verify.principal_of`."""
        of_admin_user = principals.ADMIN if self.tenant_id else principals.OPERATOR
        return {
            "kind": principals.END_USER if self.of_end_user else of_admin_user,
            "sub": str(self.user_id),
            "sid": str(self.session_id),
            "tenant_id": str(self.tenant_id) if self.tenant_id else None,
            "client_id": str(self.client_id) if self.client_id else None,
            "amr": orjson.loads(self.amr),
            "acr": self.acr,
            "auth_time": int(self.auth_time),
        }


def _stored(presented: PresentedRefreshToken) -> StoredToken:
    """Return the token that is stored under this digest. Raises InvalidToken."""
    of_end_user = presented.realm is END_USERS
    row = fetch_row(
        presented.realm.alias,
        queries.END_USER_REFRESH_TOKEN if of_end_user else queries.ADMIN_REFRESH_TOKEN,
        {"digest": presented.digest, "tenant_id": presented.tenant_id},
    )
    if row is None:
        raise InvalidToken
    if not of_end_user:
        return StoredToken(of_end_user, None, (), "[]", *row)
    *token, active, names = row[: queries.REFRESH_TOKEN_WIDTH]
    user = row[queries.REFRESH_TOKEN_WIDTH : queries.REFRESHED_USER_WIDTH]
    return StoredToken(of_end_user, row[queries.REFRESHED_USER_WIDTH :] if active else (), user, names, *token)


def _about(token: StoredToken, principal: Principal) -> RefreshedUser | None:
    """Return the user of a session that OpenID Connect has opened."""
    if principal.grant is None:
        return None
    return RefreshedUser(
        queries.USER.row(END_USERS.alias, token.user),
        Rights(principal.roles, tuple(sorted(principal.permissions)), principal.groups),
        principal.grant.scopes,
        tuple(orjson.loads(token.id_token_claims)),
    )


def claims_of_refresh_token(refresh_token: str, *, unused: bool) -> Claims:
    """Return the claims of a refresh token for introspection and revocation.

    With `unused` a token that was exchanged is unknown. Raises InvalidToken, UnknownTenant, TenantBusy.
    """
    presented = parse_refresh_token(refresh_token)
    # Also of a suspended tenant: what the caller may learn depends on its own authentication.
    with presented.realm.entered(presented.tenant_id, Purpose.INSPECT) as tenant:
        token = _stored(presented)
    if unused and token.used:
        raise InvalidToken
    return {
        **token.claims(),
        "iat": int(token.issued_at),
        "exp": int(token.expires_at),
        "iss": issuer_of(tenant),
    }


def _renew(
    presented: PresentedRefreshToken, token: StoredToken, principal: Principal, *, kept_token: str | None
) -> TokenPair:
    """Use the token and return its successor, or `kept_token` if the client's are not rotated.

    Raises as `_used_before` if it was used before.
    """
    if token.used:
        return _used_before(presented, token, principal)
    realm, moment = presented.realm, now()
    tenant = lookup.find(principal.tenant_id) if principal.tenant_id else None
    limits = issue.limits_of(principal.kind, tenant)
    ends = min(
        moment + timedelta(seconds=limits.idle),
        datetime.fromtimestamp(token.session_created_at + limits.absolute, UTC),
    )
    pair = _pair(
        token, principal, kept_token or new_refresh_token(realm, principal.tenant_id), ends=ends, tenant=tenant
    )
    key = _changed_key(token, principal)
    if kept_token is not None:
        renewed = queries.extend(realm, digest=presented.digest, moment=moment, expires_at=ends, binding=key)
    else:
        renewed = queries.rotate(
            realm,
            digest=presented.digest,
            moment=moment,
            expires_at=ends,
            successor=hash_token(pair.refresh_token),
            successor_sealed=seal(orjson.dumps(pair.fields()), data_key=realm.data_key(), context=_context(presented)),
            binding=key,
        )
    return pair if renewed else _used_before(presented, token, principal)


def _pair(
    token: StoredToken,
    principal: Principal,
    refresh_token: str,
    *,
    ends: datetime,
    tenant: lookup.TenantContext | None,
) -> TokenPair:
    access, seconds = issue.access_token(
        issue.subject_of(principal),
        token.session_id,
        amr=principal.amr,
        auth_time=int(token.auth_time),
        ends=ends,
        tenant=tenant,
    )
    grant = principal.grant
    token_type = token_type_of(grant.binding if grant is not None else "")
    scope = " ".join(grant.scopes) if grant is not None else None
    return TokenPair(access, refresh_token, seconds, token.session_id, token_type, scope)


def _changed_key(token: StoredToken, principal: Principal) -> str | None:
    """Return the key that the session is bound to from now on, or None if it keeps its own."""
    proven = principal.grant.binding if principal.grant is not None else ""
    return proven if proven != token.binding else None


def _is_of_grant(access: str, principal: Principal) -> bool:
    """Return whether an access token that was issued here is what the request asks for."""
    if principal.grant is None:
        return True
    claims: dict[str, Any] = read_unverified(access)[1]
    audience = claims["aud"]
    return (
        set([audience] if isinstance(audience, str) else audience) == set(principal.grant.audiences)
        and claims.get("scope", "") == " ".join(principal.grant.scopes)
        and binding_of(claims.get("cnf")) == principal.grant.binding
    )


def _used_before(presented: PresentedRefreshToken, token: StoredToken, principal: Principal) -> TokenPair:
    """Return the response of the winner to the loser of a race; end the session for any other use of a used token.

    If the loser asked for other scopes or audiences, or proves another key, it gets an access token of its own: an API must
    not get a token for another one (RFC 6749 section 6, RFC 8707 section 2.2). Raises InvalidGrant.
    """
    realm = presented.realm
    with realm.atomic():
        used = realm.refresh_tokens._default_manager.select_for_update().filter(digest=presented.digest).first()
        if used is None or used.used_at is None:
            raise InvalidGrant  # the session was deleted meanwhile
        if now() - used.used_at <= timedelta(seconds=settings.REFRESH_OVERLAP_SECONDS) and used.successor_sealed:
            sealed = bytes(used.successor_sealed)
            winner_response = orjson.loads(unseal(sealed, data_key=realm.data_key(), context=_context(presented)))
            if _is_of_grant(winner_response["access_token"], principal):
                scope = " ".join(principal.grant.scopes) if principal.grant is not None else None
                return TokenPair(**{**winner_response, "scope": scope}, session_id=token.session_id)
            if (jkt := _changed_key(token, principal)) is not None:
                EndUserSession._default_manager.filter(pk=token.session_id).update(dpop_jkt=jkt)
            tenant = lookup.find(principal.tenant_id) if principal.tenant_id else None
            ends = datetime.fromtimestamp(token.expires_at, UTC)
            return _pair(token, principal, winner_response["refresh_token"], ends=ends, tenant=tenant)
        end_sessions(realm, user_id=principal.id, session_id=principal.session_id, reason="refresh_reused")
        realm.record(
            "refresh_token.reused",
            target=("session", principal.session_id),
            outcome="refused",
            tenant_id=principal.tenant_id,
        )
    # Outside the transaction: the end of the session is committed before the rejection.
    raise InvalidGrant


def _context(presented: PresentedRefreshToken) -> SealContext:
    return SealContext(
        tenant=presented.realm.owner(),
        table=presented.realm.refresh_tokens._meta.db_table,
        column="successor_sealed",
        row=presented.digest.hex(),
    )
