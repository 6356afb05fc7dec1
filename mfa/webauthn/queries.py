"""What must be one statement: opening and spending a challenge, and counting a use of a passkey."""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connections

from mfa.webauthn.ceremony import CHALLENGE_BYTES, digest_of
from mfa.webauthn.models import AdminChallenge, AdminPasskey, Challenge, EndUserChallenge, EndUserPasskey, Passkey
from userflow.realms import END_USERS, Realm

REGISTRATION: Final = "registration"
AUTHENTICATION: Final = "authentication"
SIGN_IN: Final = "sign_in"
LIFETIME: Final = timedelta(minutes=5)

# Ceremonies that nobody finished are swept by those that come later, a few at a time, so that the table stays small.
_OPEN = """
WITH swept AS (
  DELETE FROM {table} WHERE digest IN
    (SELECT digest FROM {table} WHERE expires_at <= now() ORDER BY expires_at LIMIT 20 FOR UPDATE SKIP LOCKED))
INSERT INTO {table} (digest, ceremony, user_id, client_id, expires_at)
VALUES (%(digest)s, %(ceremony)s, %(user)s, %(client)s, now() + %(seconds)s * interval '1 second')
"""
# Of two answers to one challenge, one gets the row.
_SPEND = """
DELETE FROM {table} WHERE digest = %(digest)s AND expires_at > now()
  AND ((ceremony = %(ceremony)s AND user_id = %(user)s) OR (%(sign_in)s AND ceremony = 'sign_in'))
RETURNING ceremony, client_id
"""
_COUNT_USE = """
UPDATE {table} SET sign_count = %(count)s, backed_up = %(backed_up)s, last_used_at = now()
WHERE id = %(id)s AND (sign_count < %(count)s OR (sign_count = 0 AND %(count)s = 0))
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """A challenge that was open until a moment ago."""

    ceremony: str
    client_id: UUID | None


def challenges_of(realm: Realm) -> type[Challenge]:
    """The table of the realm's open ceremonies."""
    return EndUserChallenge if realm is END_USERS else AdminChallenge


def passkeys_of(realm: Realm) -> Any:
    """The table of the realm's passkeys."""
    return EndUserPasskey if realm is END_USERS else AdminPasskey


def open_challenge(realm: Realm, ceremony: str, *, user_id: UUID | None = None, client_id: UUID | None = None) -> bytes:
    """A new challenge for this ceremony of this user (of nobody yet for `sign_in`); only its hash is stored."""
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(
            _OPEN.format(table=challenges_of(realm)._meta.db_table),
            {
                "digest": digest_of(challenge),
                "ceremony": ceremony,
                "user": user_id,
                "client": client_id,
                "seconds": LIFETIME.total_seconds(),
            },
        )
    return challenge


def spend_challenge(
    realm: Realm, challenge: bytes, *, ceremony: str, user_id: UUID | None, or_sign_in: bool = False
) -> Spent | None:
    """Use up a challenge of this ceremony and user, or with `or_sign_in` one of a passkey sign-in; None if it is not open.

    Committed apart from what follows: a response that fails has had its one try.
    """
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(
            _SPEND.format(table=challenges_of(realm)._meta.db_table),
            {"digest": digest_of(challenge), "ceremony": ceremony, "user": user_id, "sign_in": or_sign_in},
        )
        row = cursor.fetchone()
    return Spent(*row) if row else None


def find_passkey(realm: Realm, credential_id: bytes, **owned: Any) -> Any | None:
    """The passkey with this credential id and its active user, in one statement; None if there is none."""
    return (
        passkeys_of(realm)
        ._default_manager.select_related("user")
        .filter(credential_id=credential_id, user__active=True, **owned)
        .first()
    )


def count_use(realm: Realm, passkey: Passkey, *, sign_count: int, backed_up: bool) -> bool:
    """Store a use of the passkey; False, and nothing stored, when its counter did not rise.

    Level 3 section 7.2 step 22: equal or lower, with either of the two not zero, means that a second authenticator
    signs with this key. The comparison is part of the statement, so two uses at once cannot both pass.
    """
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(
            _COUNT_USE.format(table=passkeys_of(realm)._meta.db_table),
            {"id": passkey.pk, "count": sign_count, "backed_up": backed_up},
        )
        return bool(cursor.rowcount)
