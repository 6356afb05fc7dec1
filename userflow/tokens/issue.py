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
from identity_platform.crypto import hash_token, new_token
from identity_platform.postgresql.parts import Part, together
from tenants import routes
from userflow import principals
from userflow.errors import WrongCredentials
from userflow.realms import ADMINS, END_USERS, Realm
from userflow.tokens.classes import AccessToken, RefreshTokenJwt
from userflow.tokens.state import GROUPS_OF_END_USER, ROLES_OF_ADMIN, ROLES_OF_END_USER, groups_in, roles_in

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


def lifetimes(route: routes.Route | None) -> tuple[int, int]:
    """Seconds of an access and of a refresh token: the tenant's settings, else the platform's."""
    if route is None:
        return settings.ACCESS_TOKEN_SECONDS, settings.REFRESH_TOKEN_SECONDS
    return route.setting("access_token_seconds"), route.setting("refresh_token_seconds")


# Session, its first refresh token and the user's last_login are one statement: a sign-in pays one round trip. The user
# comes first: its row lock makes a change of password at the same moment wait or be seen, so that no session that the old
# password has earned stands after the new one is set.
STANDING = "standing"
_STANDING = """
UPDATE {users} SET last_login = %(standing_now)s WHERE id = %(standing_user)s AND active
AND (%(standing_password)s::text IS NULL OR password = %(standing_password)s::text) {given} RETURNING id
"""
_SESSION = """
INSERT INTO {sessions} (id, user_id, client_id, amr, auth_time, created_at, expires_at, end_reason, address, user_agent)
SELECT gen_random_uuid(), id, %(session_client)s::uuid, %(session_amr)s::jsonb, %(session_now)s::timestamptz,
  %(session_now)s::timestamptz, %(session_expires)s::timestamptz, '', %(session_address)s::text, %(session_agent)s::text
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
    route: routes.Route | None,
    user_agent: str = "",
    password: str | None = None,
    given: Part | None = None,
    also: Sequence[Part] = (),
) -> TokenPair:
    """A new session of the speaker and its first pair of tokens, with the roles and groups as stored now: one statement.

    `password` is the hash that the sign-in has seen: if it was replaced since, or the user switched off, there is no
    session, nor where the part `given` has no row. `also` is what else the sign-in writes, in the same statement; it hangs
    on the part STANDING, which gives the user's `id`. Refuses with WrongCredentials; then nothing is written.
    """
    moment = now()
    _, refresh_seconds = lifetimes(route)
    jti = new_token()
    standing = {"standing_now": moment, "standing_user": speaker.user_id, "standing_password": password}
    session = {
        "session_client": speaker.client_id,
        "session_amr": orjson.dumps(amr).decode(),
        "session_now": moment,
        "session_expires": moment + timedelta(seconds=refresh_seconds),
        "session_address": current_origin().address,
        "session_agent": user_agent[:255],
    }
    refresh = {"refresh_digest": hash_token(jti), "refresh_now": moment}
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
    return pair(speaker, session_id, jti, amr=amr, auth_time=moment, route=route)


def pair(
    speaker: Speaker,
    session_id: UUID,
    refresh_jti: str,
    *,
    amr: tuple[str, ...],
    auth_time: datetime,
    route: routes.Route | None,
) -> TokenPair:
    """An access token and the refresh token with this id, both of the session."""
    access_seconds, refresh_seconds = lifetimes(route)
    access = _stamped(AccessToken(), speaker, access_seconds)
    access["sid"] = str(session_id)
    access["amr"] = list(amr)
    access["auth_time"] = int(auth_time.timestamp())
    access["roles"] = list(speaker.roles)
    access["permissions"] = list(speaker.permissions)
    if speaker.kind == principals.END_USER:
        access.payload.update(_groups_claim(speaker.groups))
    refresh = _stamped(RefreshTokenJwt(), speaker, refresh_seconds)
    refresh["sid"] = str(session_id)
    refresh["jti"] = refresh_jti
    return TokenPair(str(access), str(refresh), access_seconds, session_id)


def _groups_claim(groups: tuple[str, ...]) -> dict[str, Any]:
    """The claim `groups`, or `hasgroups` where the names would make the token too long for a header.

    Proxies take header lines of 8 KiB, so that the members of many groups could not sign in to anything. Entra ID uses the
    same claim for the same case; /authmgr/validate always returns all groups.
    """
    if len(orjson.dumps(groups)) > LONGEST_GROUPS_CLAIM:
        return {"hasgroups": True}
    return {"groups": list(groups)}


def client_token(*, client_id: UUID, generation: int, scopes: tuple[str, ...], route: routes.Route) -> tuple[str, int]:
    """An access token of a client that speaks for itself (RFC 6749 section 4.4), and its lifetime in seconds."""
    seconds, _ = lifetimes(route)
    speaker = Speaker(principals.CLIENT, client_id, route.tenant_id, client_id, (), scopes)
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


def realm_of(kind: str) -> Realm:
    """The realm in which a principal of this kind has its sessions."""
    return END_USERS if kind == principals.END_USER else ADMINS
