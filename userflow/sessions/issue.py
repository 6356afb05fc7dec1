"""New sessions and their access tokens. Claims of access tokens are written here only."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import orjson
from django.conf import settings
from django.db.models import F
from django.db.models.functions import Least
from django.utils.timezone import now

from identity_platform.audit.origin import current_origin
from tenants.addresses.issuers import issuer_of
from tenants.entering import lookup
from userflow.accounts import principals
from userflow.accounts.models import EndUser
from userflow.accounts.principals import GROUPS_SCOPE, ROLES_SCOPE, Grant, Principal, reveals
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_models import EndUserSession, Session
from userflow.accounts.session_policy import SessionLimits, acr_of, session_limits
from userflow.sessions.key_pairs import ES256
from userflow.sessions.queries import Rights
from userflow.sessions.sender_constraint import confirmation_of
from userflow.sessions.token_classes import AccessToken
from userflow.sessions.userinfo_audience import present_audiences

# Clocks of verifiers may be behind ours by this much.
CLOCK_ROOM = timedelta(seconds=120)
# Bytes of JSON; base64 adds a third in the token.
LONGEST_GROUPS_CLAIM = 3072


@dataclass(frozen=True, slots=True)
class TokenSubject:
    """The subject of a token. The tokens of a new session get the roles and groups that its statement reads."""

    kind: str
    user_id: UUID
    tenant_id: UUID | None
    client_id: UUID | None
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    # Of a session that OpenID Connect has opened.
    grant: Grant | None = None
    # Lifetime of the client's access tokens; None is the tenant's setting.
    access_token_seconds: int | None = None
    # Algorithm that signs them.
    access_token_alg: str = ES256


class RefreshedUser(NamedTuple):
    """The user of an application's session as stored now, for the ID token of a refresh."""

    user: EndUser
    rights: Rights
    # Of the session: the refreshed tokens may have fewer.
    scopes: tuple[str, ...]
    # Claims that the application has asked for by name.
    id_token_claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenPair:
    """The tokens of a completed sign-in or refresh."""

    access_token: str
    refresh_token: str
    expires_in: int
    session_id: UUID
    token_type: str = "Bearer"
    # Of a session that OpenID Connect has opened.
    scope: str | None = None
    # Of such a session that was refreshed.
    about: RefreshedUser | None = None

    def fields(self) -> dict[str, str | int]:
        """Return the fields of the response (RFC 6749 section 5.1)."""
        fields: dict[str, str | int] = {
            "access_token": self.access_token,
            "refresh_token": self.refresh_token,
            "token_type": self.token_type,
            "expires_in": self.expires_in,
        }
        return {**fields, "scope": self.scope} if self.scope else fields


def access_token_seconds(tenant: lookup.TenantContext | None, of_client: int | None = None) -> int:
    """Return the lifetime of an access token: the tenant's setting, else the platform's; a client's own if it is shorter."""
    tenant_seconds = tenant.settings.get("access_token_seconds") if tenant else None
    longest = int(settings.ACCESS_TOKEN_SECONDS if tenant_seconds is None else str(tenant_seconds))
    # The tenant may have shortened its setting since the client got its own.
    return longest if of_client is None else min(longest, of_client)


def limits_of(kind: str, tenant: lookup.TenantContext | None) -> SessionLimits:
    """Return the limits now in force for sessions of this kind of principal."""
    return session_limits(kind, tenant.settings if tenant else {})


def note_session_use(realm: Realm, session_id: UUID, limits: SessionLimits, moment: datetime) -> None:
    """Store that the session was used at this moment, and extend it to its next limit."""
    ends = Least(moment + timedelta(seconds=limits.idle), F("created_at") + timedelta(seconds=limits.absolute))
    active = realm.sessions._default_manager.filter(pk=session_id, ended_at=None)
    active.update(last_used_at=moment, expires_at=ends)


def new_session(
    realm: Realm, subject: TokenSubject, *, amr: tuple[str, ...], tenant: lookup.TenantContext | None, user_agent: str
) -> Session:
    """Return an unsaved session of the subject, whose user was verified by `amr` (RFC 8176) just now."""
    moment, limits = now(), limits_of(subject.kind, tenant)
    return realm.sessions(
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


def first_tokens(
    session: Session,
    subject: TokenSubject,
    rights: Rights,
    refresh_token: str,
    tenant: lookup.TenantContext | None,
) -> TokenPair:
    """Return the tokens of a session that was just stored, with the rights of its user."""
    holder = replace(subject, roles=rights.roles, permissions=rights.permissions, groups=rights.groups)
    access, seconds = _of_session(session, holder, tenant)
    return TokenPair(access, refresh_token, seconds, session.pk)


def access_token(
    subject: TokenSubject,
    session_id: UUID,
    *,
    amr: tuple[str, ...],
    auth_time: int,
    ends: datetime,
    tenant: lookup.TenantContext | None,
) -> tuple[str, int]:
    """Return an access token of a session that expires at `ends` unless it is used, and the token's lifetime in seconds.

    `auth_time` is the time of the sign-in in seconds since 1970.
    """
    grant = subject.grant
    seconds = min(
        access_token_seconds(tenant, subject.access_token_seconds), max(1, round((ends - now()).total_seconds()))
    )
    access = _stamped(AccessToken(algorithm=subject.access_token_alg), subject, seconds, tenant)
    access["sid"] = str(session_id)
    access["amr"] = list(amr)
    access["acr"] = acr_of(amr)
    access["auth_time"] = auth_time
    if reveals(grant, ROLES_SCOPE):
        access["roles"] = list(subject.roles)
    access["permissions"] = list(subject.permissions)
    if subject.kind == principals.END_USER and reveals(grant, GROUPS_SCOPE):
        access.payload.update(_groups_claim(subject.groups))
    if grant is not None:
        access["aud"] = _audience(grant.audiences)
        access["scope"] = " ".join(grant.scopes)
        access["permissions"] = sorted(grant.allowed(frozenset(subject.permissions)))
        if grant.binding:
            access["cnf"] = confirmation_of(grant.binding)
        _leave_out_empty(access)
    return str(access), seconds


def application_access_token(
    session: EndUserSession,
    rights: Rights,
    *,
    tenant: lookup.TenantContext,
    first_party: bool,
    seconds: int | None = None,
    algorithm: str = ES256,
) -> tuple[str, int]:
    """Return an access token of an application's session (RFC 9068), and its lifetime in seconds.

    `seconds` is the client's own lifetime, `algorithm` the one that it has chosen. A first-party application gets the user's
    roles, groups and permissions. Another one gets the permissions that its scopes name, and roles and groups with the scopes
    `roles` and `groups`.
    """
    grant = Grant(tuple(session.scopes), present_audiences(session.audiences, tenant), session.dpop_jkt, first_party)
    subject = TokenSubject(
        principals.END_USER,
        session.user_id,
        tenant.tenant_id,
        session.client_id,
        rights.roles,
        rights.permissions,
        rights.groups,
        grant,
        seconds,
        algorithm,
    )
    return _of_session(session, subject, tenant)


def _of_session(session: Session, subject: TokenSubject, tenant: lookup.TenantContext | None) -> tuple[str, int]:
    return access_token(
        subject,
        session.pk,
        amr=tuple(session.amr),
        auth_time=int(session.auth_time.timestamp()),
        ends=session.expires_at,
        tenant=tenant,
    )


def _groups_claim(groups: tuple[str, ...]) -> dict[str, object]:
    """Return the claim `groups`, or `hasgroups` if the names would make the token too long for a header.

    Proxies accept header lines of 8 KiB; members of many groups could not use their tokens. Entra ID uses the same claim for
    the same case. /authmgr/validate always returns all groups.
    """
    if len(orjson.dumps(groups)) > LONGEST_GROUPS_CLAIM:
        return {"hasgroups": True}
    return {"groups": list(groups)}


def client_token(
    *,
    client_id: UUID,
    generation: int,
    scopes: tuple[str, ...],
    audiences: tuple[str, ...],
    tenant: lookup.TenantContext,
    binding: str = "",
    longest: int | None = None,
    algorithm: str = ES256,
) -> tuple[str, int]:
    """Return a client's own access token (RFC 6749 section 4.4), and its lifetime in seconds.

    Without `audiences` it is for the platform's API. `longest` is the client's own lifetime, `algorithm` the one that it has
    chosen.
    """
    seconds = access_token_seconds(tenant, longest)
    subject = TokenSubject(principals.CLIENT, client_id, tenant.tenant_id, client_id, (), scopes)
    access = _stamped(AccessToken(algorithm=algorithm), subject, seconds, tenant)
    access["scope"] = " ".join(scopes)
    access["gen"] = generation
    access["permissions"] = list(scopes)
    if audiences:
        access["aud"] = _audience(audiences)
    if binding:
        access["cnf"] = confirmation_of(binding)
    _leave_out_empty(access)
    return str(access), seconds


def _leave_out_empty(access: AccessToken) -> None:
    """Leave out an empty scope (RFC 6749 section 3.3) and empty claims of RFC 9068 section 2.2.3.1, which Authlib rejects."""
    for name in ("scope", "roles", "groups"):
        if access.get(name) in ("", []):
            del access[name]


def _audience(names: tuple[str, ...]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


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
        grant=principal.grant,
        access_token_seconds=principal.access_token_seconds,
        access_token_alg=principal.access_token_alg,
    )


def realm_of(kind: str) -> Realm:
    """Return the realm that stores the sessions of this kind of principal."""
    return END_USERS if kind == principals.END_USER else ADMINS
