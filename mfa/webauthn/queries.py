"""What must be one statement: opening and spending a challenge, and counting a use of a passkey."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, connections

from identity_platform.postgresql.parts import Part
from mfa.errors import UnknownEmail
from mfa.verification import names_of
from mfa.webauthn.ceremony import CHALLENGE_BYTES, KeyHandle
from mfa.webauthn.models import AdminChallenge, AdminPasskey, Challenge, EndUserChallenge, EndUserPasskey
from mfa.webauthn.responses import digest_of
from userflow.accounts.realms import END_USERS, Realm

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
# A use of a passkey, as condition and change. Level 3 section 7.2 step 22: a counter that is equal or lower, with either of
# the two not zero, means that a second authenticator signs with this key. The comparison is part of the statement, so two
# uses at once cannot both pass.
USABLE: Final = "f.id = %(use_passkey)s AND (f.sign_count < %(use_count)s OR (f.sign_count = 0 AND %(use_count)s = 0))"
USED: Final = "sign_count = %(use_count)s, backed_up = %(use_backed_up)s, last_used_at = now()"
# A use after the password shows that the user has both.
USED_AFTER_PASSWORD: Final = USED + ", second_step_only = false"
# The same spending behind a try that was counted, of the user whom it found.
_SPENT_WITH_TRY = """
DELETE FROM {table} c USING person, counted WHERE c.digest = %(spent_digest)s AND c.expires_at > now()
  AND ((c.ceremony = %(spent_ceremony)s AND c.user_id = person.id) OR (%(spent_sign_in)s AND c.ceremony = 'sign_in'))
RETURNING c.ceremony, c.client_id
"""
# And of a passkey sign-in, where the passkey says whose it is.
_SIGNING_IN = """
WITH spent AS (DELETE FROM {challenges} WHERE digest = %(digest)s AND expires_at > now() AND ceremony = 'sign_in'
  RETURNING ceremony, client_id)
SELECT spent.ceremony, spent.client_id, owned.* FROM (SELECT) AS one LEFT JOIN spent ON true
LEFT JOIN (SELECT {of_factor}, {of_user} FROM {passkeys} f JOIN {users} u ON u.id = f.user_id
  WHERE f.credential_id = %(credential)s AND u.active) AS owned ON true
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
    """A new challenge for this ceremony of this user (of nobody yet for `sign_in`); only its hash is stored.

    Raises UnknownEmail (404) when the user is erased at this very moment.
    """
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    values = {
        "digest": digest_of(challenge),
        "ceremony": ceremony,
        "user": user_id,
        "client": client_id,
        "seconds": LIFETIME.total_seconds(),
    }
    try:
        with connections[realm.alias].cursor() as cursor:
            cursor.execute(_OPEN.format(table=challenges_of(realm)._meta.db_table), values)
    except IntegrityError as gone:
        raise UnknownEmail from gone
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


KNOWN: Final = ("id", "credential_id", "public_key", "backup_eligible", "second_step_only")


@dataclass(frozen=True, slots=True)
class Known:
    """What verifying a use asks of a stored passkey."""

    id: UUID
    credential_id: bytes
    public_key: bytes
    backup_eligible: bool
    second_step_only: bool

    @classmethod
    def of(cls, row: Sequence[Any]) -> "Known | None":
        """From the values of KNOWN; None where there is no passkey."""
        return cls(*row) if row[0] is not None else None


def spent_with_try(realm: Realm, challenge: bytes | None, *, ceremony: str, or_sign_in: bool) -> Part:
    """`spend_challenge` as a part of the statement that finds the user and counts the try; no try, nothing spent."""
    values = {
        "spent_digest": digest_of(challenge) if challenge is not None else None,
        "spent_ceremony": ceremony,
        "spent_sign_in": or_sign_in,
    }
    return Part("spent", _SPENT_WITH_TRY.format(table=challenges_of(realm)._meta.db_table), values)


def signing_in(
    realm: Realm, challenge: bytes | None, credential_id: bytes | None
) -> tuple[Any | None, Known | None, Spent | None]:
    """Spend a challenge of a passkey sign-in, and find the passkey and its active user: one statement."""
    names = names_of(realm)
    sql = _SIGNING_IN.format(
        challenges=challenges_of(realm)._meta.db_table,
        passkeys=passkeys_of(realm)._meta.db_table,
        users=realm.users._meta.db_table,
        of_factor=", ".join(f"f.{name} AS factor_{name}" for name in KNOWN),
        of_user=", ".join(f"u.{name}" for name in names),
    )
    digest = digest_of(challenge) if challenge is not None else None
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(sql, {"digest": digest, "credential": credential_id})
        ceremony, client_id, *row = cursor.fetchone()
    spent = Spent(ceremony, client_id) if ceremony is not None else None
    known = Known.of(row[: len(KNOWN)])
    user = realm.users.from_db(realm.alias, list(names), row[len(KNOWN) :]) if known else None
    return user, known, spent


def handles_of(user: Any) -> list[KeyHandle]:
    """How browsers find the user's passkeys, oldest first."""
    found = user.passkeys.order_by("created_at").values_list("credential_id", "transports")
    return [KeyHandle(bytes(credential_id), tuple(transports)) for credential_id, transports in found]
