"""The only place that writes claims: sessions become access and refresh tokens here."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings
from django.db import connections
from django.utils.timezone import now

from identity_platform.audit.origin import current_origin
from identity_platform.crypto import hash_token, new_token
from tenants import routes
from userflow import principals
from userflow.errors import WrongCredentials
from userflow.realms import ADMINS, END_USERS, Realm
from userflow.tokens.classes import AccessToken, RefreshTokenJwt

# Clocks of other machines may be behind ours by this much (security.md section 4).
CLOCK_ROOM = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Speaker:
    """Whom a token speaks for."""

    kind: str
    user_id: UUID
    tenant_id: UUID | None
    client_id: UUID | None
    roles: tuple[str, ...]
    permissions: tuple[str, ...]


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
    own = route.settings if route else {}
    return (
        int(own.get("access_token_seconds", settings.ACCESS_TOKEN_SECONDS)),
        int(own.get("refresh_token_seconds", settings.REFRESH_TOKEN_SECONDS)),
    )


# Session, its first refresh token and the user's last_login in one statement: a sign-in pays one round trip. The user
# comes first: its row lock makes a change of password at the same moment wait or be seen, so that no session that the old
# password has earned stands after the new one is set.
_OPEN = """
WITH u AS (UPDATE {users} SET last_login = %(now)s WHERE id = %(user)s AND active
    AND (%(password)s::text IS NULL OR password = %(password)s::text) RETURNING id),
  s AS (INSERT INTO {sessions} (id, user_id, client_id, amr, auth_time, created_at, expires_at, end_reason, address,
    user_agent) SELECT gen_random_uuid(), u.id, %(client)s::uuid, %(amr)s::jsonb, %(now)s, %(now)s, %(expires)s, '',
    %(address)s, %(agent)s FROM u RETURNING id),
  r AS (INSERT INTO {refresh} (digest, issued_at, session_id) SELECT %(digest)s, %(now)s, s.id FROM s)
SELECT id FROM s
"""


def open_session(
    realm: Realm,
    speaker: Speaker,
    *,
    amr: tuple[str, ...],
    route: routes.Route | None,
    user_agent: str = "",
    password: str | None = None,
) -> TokenPair:
    """A new session of the speaker and its first pair of tokens. Call it in the realm's transaction.

    `password` is the hash that the sign-in has seen: if it was replaced since, or the user switched off, there is no
    session. Refuses with WrongCredentials.
    """
    moment = now()
    _, refresh_seconds = lifetimes(route)
    jti = new_token()
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(
            _OPEN.format(
                sessions=realm.sessions._meta.db_table,
                refresh=realm.refresh_tokens._meta.db_table,
                users=realm.users._meta.db_table,
            ),
            {
                "user": speaker.user_id,
                "password": password,
                "client": speaker.client_id,
                "amr": orjson.dumps(amr).decode(),
                "now": moment,
                "expires": moment + timedelta(seconds=refresh_seconds),
                "digest": hash_token(jti),
                "address": current_origin().address,
                "agent": user_agent[:255],
            },
        )
        row = cursor.fetchone()
    if row is None:
        raise WrongCredentials
    session_id: UUID = row[0]
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
    refresh = _stamped(RefreshTokenJwt(), speaker, refresh_seconds)
    refresh["sid"] = str(session_id)
    refresh["jti"] = refresh_jti
    return TokenPair(str(access), str(refresh), access_seconds, session_id)


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
