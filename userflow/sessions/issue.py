"""The only place that writes claims: sessions become access and refresh tokens here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings
from django.db import connections
from django.utils.timezone import now

from identity_platform.audit.origin import current_origin
from identity_platform.crypto import hash_token
from identity_platform.postgresql.parts import Part, together
from tenants import lookup
from userflow.accounts import principals
from userflow.accounts.principals import Principal
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_policy import SessionLimits, acr_of, session_limits
from userflow.errors import WrongCredentials
from userflow.sessions.refresh_tokens import new_refresh_token
from userflow.sessions.token_classes import AccessToken
from userflow.sessions.verify import GROUPS_OF_END_USER, ROLES_OF_ADMIN, ROLES_OF_END_USER, groups_in, roles_in

# Clocks of other machines may be behind ours by this much (security.md section 4).
CLOCK_ROOM = timedelta(seconds=120)
# Bytes of JSON; in a token they are a third more.
LONGEST_GROUPS_CLAIM = 3072


@dataclass(frozen=True, slots=True)
class Speaker:
    """Whom a token speaks for. A new session's tokens get the roles and groups that `open_session` finds."""

    kind: str
    user_id: UUID
    tenant_id: UUID | None
    client_id: UUID | None
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenPair:
    """What a completed sign-in or refresh answers."""

    access_token: str
    refresh_token: str
    expires_in: int
    session_id: UUID
    token_type: str = "Bearer"

    def members(self) -> dict[str, Any]:
        """The members of the answer (RFC 6749 section 5.1)."""
        return {
            "access_token": self.access_token,
            "refresh_token": self.refresh_token,
            "token_type": self.token_type,
            "expires_in": self.expires_in,
        }


def access_token_seconds(tenant: lookup.TenantContext | None) -> int:
    """Lifetime of an access token: the tenant's setting, else the platform's."""
    return int(tenant.setting("access_token_seconds") if tenant else settings.ACCESS_TOKEN_SECONDS)


def limits_of(subject: Speaker, tenant: lookup.TenantContext | None) -> SessionLimits:
    """The limits now in force for a session of the subject."""
    return session_limits(subject.kind, tenant.settings if tenant else {})


# Session, its first refresh token and the user's last_login are one statement: a sign-in pays one round trip. The user
# comes first: its row lock makes a change of password at the same moment wait or be seen, so that no session that the old
# password has earned stands after the new one is set.
STANDING = "standing"
_STANDING = """
UPDATE {users} SET last_login = %(standing_now)s WHERE id = %(standing_user)s AND active
AND (%(standing_password)s::text IS NULL OR password = %(standing_password)s::text)
AND (NOT %(standing_password_only)s OR mfa_methods = '[]') {given} RETURNING id
"""
_SESSION = """
INSERT INTO {sessions} (id, user_id, client_id, amr, acr, auth_time, created_at, last_used_at, expires_at, end_reason,
  address, user_agent)
SELECT gen_random_uuid(), id, %(session_client)s::uuid, %(session_amr)s::jsonb, %(session_acr)s::text,
  %(session_now)s::timestamptz, %(session_now)s::timestamptz, %(session_now)s::timestamptz,
  %(session_expires)s::timestamptz, '', %(session_address)s::text, %(session_agent)s::text
FROM standing RETURNING id, user_id
"""
_REFRESH = """
INSERT INTO {refresh} (digest, issued_at, session_id)
SELECT %(refresh_digest)s::bytea, %(refresh_now)s::timestamptz, id FROM session
"""


def open_session(
    realm: Realm,
    speaker: Speaker,
    *,
    amr: tuple[str, ...],
    tenant: lookup.TenantContext | None,
    user_agent: str = "",
    password: str | None = None,
    password_only: bool = False,
    given: Part | None = None,
    also: Sequence[Part] = (),
) -> TokenPair:
    """A new session of the speaker and its first pair of tokens, with the roles and groups as stored now: one statement.

    `password` is the hash that the sign-in has seen: if it was replaced since, or the user switched off, there is no
    session, nor where the part `given` has no row, nor with `password_only` for a user who has a factor by now. `also` is
    what else the sign-in writes, in the same statement; it hangs on the part STANDING, which gives the user's `id`.
    Raises WrongCredentials; then nothing is written.
    """
    moment = now()
    limits = limits_of(speaker, tenant)
    expires = moment + timedelta(seconds=min(limits.idle, limits.absolute))
    refresh_token = new_refresh_token(realm, speaker.tenant_id)
    standing = {
        "standing_now": moment,
        "standing_user": speaker.user_id,
        "standing_password": password,
        "standing_password_only": password_only,
    }
    session = {
        "session_client": speaker.client_id,
        "session_amr": orjson.dumps(amr).decode(),
        "session_acr": acr_of(amr),
        "session_now": moment,
        "session_expires": expires,
        "session_address": current_origin().address,
        "session_agent": user_agent[:255],
    }
    refresh = {"refresh_digest": hash_token(refresh_token), "refresh_now": moment}
    if_given = f"AND EXISTS (SELECT FROM {given.name})" if given else ""
    parts = [
        *([given] if given else []),
        Part(STANDING, _STANDING.format(users=realm.users._meta.db_table, given=if_given), standing),
        Part("session", _SESSION.format(sessions=realm.sessions._meta.db_table), session),
        Part("refresh", _REFRESH.format(refresh=realm.refresh_tokens._meta.db_table), refresh),
        *also,
    ]
    roles, groups = (ROLES_OF_END_USER, GROUPS_OF_END_USER) if realm is END_USERS else (ROLES_OF_ADMIN, "'[]'")
    rights = f"{roles}, {groups}".format(user="session.user_id")
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(*together(parts, f"SELECT id, {rights} FROM session"))
        row = cursor.fetchone()
    if row is None:
        raise WrongCredentials
    session_id, found, found_groups = row
    names, permissions = roles_in(found)
    speaker = replace(speaker, roles=names, permissions=tuple(sorted(permissions)), groups=groups_in(found_groups))
    access, seconds = access_token(speaker, session_id, amr=amr, auth_time=moment, ends=expires, tenant=tenant)
    return TokenPair(access, refresh_token, seconds, session_id)


def access_token(
    subject: Speaker,
    session_id: UUID,
    *,
    amr: tuple[str, ...],
    auth_time: datetime,
    ends: datetime,
    tenant: lookup.TenantContext | None,
) -> tuple[str, int]:
    """An access token of the session, which `ends` by then unless it is used, and the token's lifetime in seconds."""
    seconds = min(access_token_seconds(tenant), max(1, round((ends - now()).total_seconds())))
    access = _stamped(AccessToken(), subject, seconds)
    access["sid"] = str(session_id)
    access["amr"] = list(amr)
    access["acr"] = acr_of(amr)
    access["auth_time"] = int(auth_time.timestamp())
    access["roles"] = list(subject.roles)
    access["permissions"] = list(subject.permissions)
    if subject.kind == principals.END_USER:
        access.payload.update(_groups_claim(subject.groups))
    return str(access), seconds


def _groups_claim(groups: tuple[str, ...]) -> dict[str, Any]:
    """The claim `groups`, or `hasgroups` where the names would make the token too long for a header.

    Proxies take header lines of 8 KiB, so that the members of many groups could not sign in to anything. Entra ID uses the
    same claim for the same case; /authmgr/validate always returns all groups.
    """
    if len(orjson.dumps(groups)) > LONGEST_GROUPS_CLAIM:
        return {"hasgroups": True}
    return {"groups": list(groups)}


def client_token(
    *, client_id: UUID, generation: int, scopes: tuple[str, ...], tenant: lookup.TenantContext
) -> tuple[str, int]:
    """An access token of a client that speaks for itself (RFC 6749 section 4.4), and its lifetime in seconds."""
    seconds = access_token_seconds(tenant)
    speaker = Speaker(principals.CLIENT, client_id, tenant.tenant_id, client_id, (), scopes)
    access = _stamped(AccessToken(), speaker, seconds)
    access["scope"] = " ".join(scopes)
    access["gen"] = generation
    access["roles"] = []
    access["permissions"] = list(scopes)
    return str(access), seconds


def _stamped(token: Any, speaker: Speaker, seconds: int) -> Any:
    token.set_exp(lifetime=timedelta(seconds=seconds))
    token["nbf"] = int((token.current_time - CLOCK_ROOM).timestamp())
    token["sub"] = str(speaker.user_id)
    token["kind"] = speaker.kind
    token["tenant_id"] = str(speaker.tenant_id) if speaker.tenant_id else None
    token["client_id"] = str(speaker.client_id) if speaker.client_id else None
    return token


def subject_of(principal: Principal) -> Speaker:
    """The subject of further tokens of the caller's session, with the roles and groups as just read."""
    return Speaker(
        kind=principal.kind,
        user_id=principal.id,
        tenant_id=principal.tenant_id,
        client_id=principal.client_id,
        roles=principal.roles,
        permissions=tuple(sorted(principal.permissions)),
        groups=principal.groups,
    )


def realm_of(kind: str) -> Realm:
    """The realm in which a principal of this kind has its sessions."""
    return END_USERS if kind == principals.END_USER else ADMINS
