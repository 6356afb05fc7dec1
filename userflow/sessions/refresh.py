"""Refreshing a session (RFC 6749 section 6) with rotation and detection of reuse (RFC 9700 section 4.14.2)."""

from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import orjson
from django.conf import settings
from django.utils.timezone import now

from identity_platform.audit.origin import set_actor
from identity_platform.crypto import SealContext, hash_token, seal, unseal
from tenants import lookup
from tenants.context import in_tenant
from tenants.errors import TenantSuspended, UnknownTenant
from tenants.states import Purpose
from userflow.accounts import principals
from userflow.accounts.principals import Claims, Principal
from userflow.accounts.realms import END_USERS, Realm
from userflow.errors import EmailNotVerified, FactorRequired, InvalidGrant
from userflow.sessions import issue
from userflow.sessions import verify as state
from userflow.sessions.client_authentication import authenticate_client
from userflow.sessions.ending import end_sessions
from userflow.sessions.issue import TokenPair
from userflow.sessions.refresh_tokens import PresentedRefreshToken, new_refresh_token, parse_refresh_token
from userflow.sessions.token_classes import InvalidToken


def refresh_session(*, refresh_token: str, client_id: str | None = None, secret: str | None = None) -> TokenPair:
    """Exchange a refresh token for its successor and a new access token.

    The token is bound to the client it was issued to: a confidential one must authenticate, a public one may send its id.
    The loser of a race within ten seconds gets the winner's response. Any other use of a used token, and its use after the
    successor was used, ends the session: one of the two holders has stolen it. The limits and the policy now in force
    apply, not those of the sign-in. Raises InvalidClient, TenantBusy, and InvalidGrant, which says
    that the tenant is suspended if the token is valid.
    """
    client = authenticate_client(client_id=client_id, secret=secret) if client_id else None
    try:
        presented = parse_refresh_token(refresh_token)
    except InvalidToken as problem:
        raise InvalidGrant from problem
    try:
        with entered(presented, Purpose.SIGN_IN):
            session = _link(presented).session
            if client is not None and client.id != session.client_id:
                raise InvalidGrant
            if client is None and session.client_id:
                authenticate_client(client_id=str(session.client_id), secret=None)
            principal = state.principal_of(claims_of_session(presented, session))
            set_actor(principal.kind, str(principal.id), principal.client_id)
            if not principal.meets_policy():
                raise InvalidGrant((EmailNotVerified if principal.must_verify_email else FactorRequired).message)
            return _rotate(presented, principal)
    except (InvalidToken, state.SessionInactive, UnknownTenant) as problem:
        raise InvalidGrant from problem
    except TenantSuspended as problem:
        raise InvalidGrant(problem.text if _is_valid(presented) else None) from problem


def _is_valid(presented: PresentedRefreshToken) -> bool:
    """Return whether a suspended tenant's refresh token would be accepted if the tenant were active."""
    with entered(presented, Purpose.INSPECT):
        valid = presented.realm.refresh_tokens._default_manager.filter(
            digest=presented.digest,
            used_at=None,
            session__user__active=True,
            session__ended_at=None,
            session__expires_at__gt=now(),
        )
        return valid.exists()


def entered(presented: PresentedRefreshToken, purpose: Purpose) -> AbstractContextManager[Any]:
    """Enter the database that a presented refresh token names. Raises UnknownTenant, TenantSuspended, TenantBusy."""
    return in_tenant(presented.tenant_id, purpose) if presented.tenant_id is not None else nullcontext()


def _link(presented: PresentedRefreshToken) -> Any:
    found = presented.realm.refresh_tokens._default_manager.select_related("session__user")
    link: Any = found.filter(digest=presented.digest).first()
    if link is None:
        raise InvalidToken
    return link


def claims_of_session(presented: PresentedRefreshToken, session: Any) -> Claims:
    """Return the claims that an access token of the session would have, for `verify.principal_of`."""
    tenant_id = presented.tenant_id or getattr(session.user, "tenant_id", None)
    of_admin_user = principals.ADMIN if tenant_id else principals.OPERATOR
    return {
        "kind": principals.END_USER if presented.realm is END_USERS else of_admin_user,
        "sub": str(session.user_id),
        "sid": str(session.pk),
        "tenant_id": str(tenant_id) if tenant_id else None,
        "client_id": str(session.client_id) if session.client_id else None,
        "amr": session.amr,
        "acr": session.acr,
        "auth_time": int(session.auth_time.timestamp()),
    }


def claims_of_refresh_token(refresh_token: str, *, unused: bool) -> Claims:
    """Return the claims of a refresh token for introspection and revocation.

    With `unused` a token that was exchanged is unknown. Raises InvalidToken, UnknownTenant, TenantBusy.
    """
    presented = parse_refresh_token(refresh_token)
    # Also of a suspended tenant: what the caller may learn depends on its own authentication.
    with entered(presented, Purpose.INSPECT):
        link = _link(presented)
        if unused and link.used_at is not None:
            raise InvalidToken
    session = link.session
    return {
        **claims_of_session(presented, session),
        "iat": int(link.issued_at.timestamp()),
        "exp": int(session.expires_at.timestamp()),
        "iss": settings.TOKEN_ISSUER,
    }


def _rotate(presented: PresentedRefreshToken, principal: Principal) -> TokenPair:
    realm = presented.realm
    with realm.atomic():
        links = realm.refresh_tokens._default_manager.select_for_update(of=("self",)).select_related("session")
        link: Any = links.filter(digest=presented.digest).first()
        if link is None:
            raise InvalidGrant
        if link.used_at is None:
            return _successor(realm, principal, link)
        if now() - link.used_at <= timedelta(seconds=settings.REFRESH_RACE_SECONDS) and link.successor_sealed:
            sealed = bytes(link.successor_sealed)
            kept = orjson.loads(unseal(sealed, data_key=realm.data_key(), context=_context(realm, link)))
            return TokenPair(**kept, session_id=link.session_id)
        end_sessions(realm, user_id=principal.id, session_id=principal.session_id, reason="refresh_reused")
        realm.record(
            "refresh_token.reused",
            target=("session", principal.session_id),
            outcome="refused",
            tenant_id=principal.tenant_id,
        )
    # Outside the transaction: the end of the session is committed before the rejection.
    raise InvalidGrant


def _context(realm: Realm, link: Any) -> SealContext:
    return SealContext(
        tenant=realm.owner(),
        table=realm.refresh_tokens._meta.db_table,
        column="successor_sealed",
        row=bytes(link.digest).hex(),
    )


def _successor(realm: Realm, principal: Principal, link: Any) -> TokenPair:
    moment = now()
    session = link.session
    tenant = lookup.find(principal.tenant_id) if principal.tenant_id else None
    subject = issue.subject_of(principal)
    limits = issue.limits_of(subject, tenant)
    session.last_used_at = moment
    session.expires_at = min(
        moment + timedelta(seconds=limits.idle), session.created_at + timedelta(seconds=limits.absolute)
    )
    access, seconds = issue.access_token(
        subject, session.pk, amr=tuple(session.amr), auth_time=session.auth_time, ends=session.expires_at, tenant=tenant
    )
    pair = TokenPair(access, new_refresh_token(realm, principal.tenant_id), seconds, session.pk)
    link.successor_sealed = seal(orjson.dumps(pair.fields()), data_key=realm.data_key(), context=_context(realm, link))
    link.used_at = moment
    link.save(update_fields=["successor_sealed", "used_at"])
    # The use of this token shows that its holder received it. A caller that still presents its predecessor is another one.
    realm.refresh_tokens._default_manager.filter(session=session).exclude(successor_sealed=None).exclude(
        pk=link.pk
    ).update(successor_sealed=None)
    realm.refresh_tokens._default_manager.create(digest=hash_token(pair.refresh_token), session=session)
    session.save(update_fields=["last_used_at", "expires_at"])
    return pair
