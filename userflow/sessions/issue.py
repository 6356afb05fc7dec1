"""Open sessions and issue their tokens. Claims are written here only."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import orjson
from django.conf import settings
from django.utils.timezone import now

from identity_platform.audit.origin import current_origin
from identity_platform.crypto import hash_token
from tenants import lookup
from tenants.issuers import issuer_of
from userflow.accounts import principals
from userflow.accounts.principals import Principal
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_models import Session
from userflow.accounts.session_policy import SessionLimits, acr_of, session_limits
from userflow.credentials.attempts import Counter
from userflow.errors import WrongCredentials
from userflow.sessions import queries
from userflow.sessions.queries import Rights
from userflow.sessions.refresh_tokens import new_refresh_token
from userflow.sessions.token_classes import AccessToken

# Clocks of verifiers may be behind ours by this much.
CLOCK_ROOM = timedelta(seconds=120)
# Bytes of JSON; base64 adds a third in the token.
LONGEST_GROUPS_CLAIM = 3072


@dataclass(frozen=True, slots=True)
class TokenSubject:
    """The subject of a token. The tokens of a new session get the roles and groups that `open_session` reads."""

    kind: str
    user_id: UUID
    tenant_id: UUID | None
    client_id: UUID | None
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenPair:
    """The tokens of a completed sign-in or refresh."""

    access_token: str
    refresh_token: str
    expires_in: int
    session_id: UUID
    token_type: str = "Bearer"

    def fields(self) -> dict[str, str | int]:
        """Return the fields of the response (RFC 6749 section 5.1)."""
        return {
            "access_token": self.access_token,
            "refresh_token": self.refresh_token,
            "token_type": self.token_type,
            "expires_in": self.expires_in,
        }


def access_token_seconds(tenant: lookup.TenantContext | None) -> int:
    """Return the lifetime of an access token: the tenant's setting, else the platform's."""
    return tenant.effective["access_token_seconds"] if tenant else int(settings.ACCESS_TOKEN_SECONDS)


def limits_of(subject: TokenSubject, tenant: lookup.TenantContext | None) -> SessionLimits:
    """Return the limits now in force for a session of the subject."""
    return session_limits(subject.kind, tenant.settings if tenant else {})


def open_session(
    realm: Realm,
    subject: TokenSubject,
    *,
    amr: tuple[str, ...],
    tenant: lookup.TenantContext | None,
    password: str,
    user_agent: str = "",
    password_only: bool = False,
    cleared: Counter | None = None,
) -> TokenPair:
    """Open a session of the subject and audit the sign-in; return its first pair of tokens, with the rights as stored now.

    `password` is the hash that the sign-in has compared, `cleared` the counter of attempts that its success clears. Raises
    WrongCredentials, with nothing written, when the password was replaced since, the user was deactivated, or with
    `password_only` has a factor by now. Call it in the realm's transaction.
    """
    realm.require_transaction()
    session, refresh_token = new_session(realm, subject, amr=amr, tenant=tenant, user_agent=user_agent)
    rights = queries.open_session(
        realm,
        session,
        realm.refresh_tokens(digest=hash_token(refresh_token), session_id=session.pk),
        tenant_id=subject.tenant_id,
        password=password,
        password_only=password_only,
        cleared=cleared,
    )
    if rights is None:
        raise WrongCredentials
    return first_tokens(session, subject, rights, refresh_token, tenant)


def new_session(
    realm: Realm, subject: TokenSubject, *, amr: tuple[str, ...], tenant: lookup.TenantContext | None, user_agent: str
) -> tuple[Session, str]:
    """Return an unsaved session of the subject and its first refresh token."""
    moment, limits = now(), limits_of(subject, tenant)
    session = realm.sessions(
        user_id=subject.user_id,
        client_id=subject.client_id,
        amr=list(amr),
        acr=acr_of(amr),
        auth_time=moment,
        last_used_at=moment,
        expires_at=moment + timedelta(seconds=min(limits.idle, limits.absolute)),
        address=current_origin().address,
        user_agent=user_agent[:255],
    )
    return session, new_refresh_token(realm, subject.tenant_id)


def first_tokens(
    session: Session,
    subject: TokenSubject,
    rights: Rights,
    refresh_token: str,
    tenant: lookup.TenantContext | None,
) -> TokenPair:
    """Return the tokens of a session that was just stored, with the rights of its user."""
    holder = replace(subject, roles=rights.roles, permissions=rights.permissions, groups=rights.groups)
    access, seconds = access_token(
        holder, session.pk, amr=tuple(session.amr), auth_time=session.auth_time, ends=session.expires_at, tenant=tenant
    )
    return TokenPair(access, refresh_token, seconds, session.pk)


def access_token(
    subject: TokenSubject,
    session_id: UUID,
    *,
    amr: tuple[str, ...],
    auth_time: datetime,
    ends: datetime,
    tenant: lookup.TenantContext | None,
) -> tuple[str, int]:
    """Return an access token of a session that expires at `ends` unless it is used, and the token's lifetime in seconds."""
    seconds = min(access_token_seconds(tenant), max(1, round((ends - now()).total_seconds())))
    access = _stamped(AccessToken(), subject, seconds, tenant)
    access["sid"] = str(session_id)
    access["amr"] = list(amr)
    access["acr"] = acr_of(amr)
    access["auth_time"] = int(auth_time.timestamp())
    access["roles"] = list(subject.roles)
    access["permissions"] = list(subject.permissions)
    if subject.kind == principals.END_USER:
        access.payload.update(_groups_claim(subject.groups))
    return str(access), seconds


def _groups_claim(groups: tuple[str, ...]) -> dict[str, object]:
    """Return the claim `groups`, or `hasgroups` if the names would make the token too long for a header.

    Proxies accept header lines of 8 KiB; members of many groups could not use their tokens. Entra ID uses the same claim for
    the same case. /authmgr/validate always returns all groups.
    """
    if len(orjson.dumps(groups)) > LONGEST_GROUPS_CLAIM:
        return {"hasgroups": True}
    return {"groups": list(groups)}


def client_token(
    *, client_id: UUID, generation: int, scopes: tuple[str, ...], tenant: lookup.TenantContext
) -> tuple[str, int]:
    """Return a client's own access token (RFC 6749 section 4.4), and its lifetime in seconds."""
    seconds = access_token_seconds(tenant)
    subject = TokenSubject(principals.CLIENT, client_id, tenant.tenant_id, client_id, (), scopes)
    access = _stamped(AccessToken(), subject, seconds, tenant)
    access["scope"] = " ".join(scopes)
    access["gen"] = generation
    access["roles"] = []
    access["permissions"] = list(scopes)
    return str(access), seconds


def _stamped(
    token: AccessToken, subject: TokenSubject, seconds: int, tenant: lookup.TenantContext | None
) -> AccessToken:
    # A tenant's admins belong to the platform's issuer.
    token["iss"] = issuer_of(tenant if subject.kind in (principals.END_USER, principals.CLIENT) else None)
    token.set_exp(lifetime=timedelta(seconds=seconds))
    token["nbf"] = int((token.current_time - CLOCK_ROOM).timestamp())
    token["sub"] = str(subject.user_id)
    token["kind"] = subject.kind
    token["tenant_id"] = str(subject.tenant_id) if subject.tenant_id else None
    token["client_id"] = str(subject.client_id) if subject.client_id else None
    return token


def subject_of(principal: Principal) -> TokenSubject:
    """Return the subject of further tokens of the caller's session, with the roles and groups of the principal."""
    return TokenSubject(
        kind=principal.kind,
        user_id=principal.id,
        tenant_id=principal.tenant_id,
        client_id=principal.client_id,
        roles=principal.roles,
        permissions=tuple(sorted(principal.permissions)),
        groups=principal.groups,
    )


def realm_of(kind: str) -> Realm:
    """Return the realm that stores the sessions of this kind of principal."""
    return END_USERS if kind == principals.END_USER else ADMINS
