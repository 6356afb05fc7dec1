"""Open and consume challenges, and find passkeys."""

import secrets
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils.timezone import now

from identity_platform.postgresql.row_errors import unique_or
from identity_platform.postgresql.statements import fetch_row
from mfa.errors import UnknownEmail
from mfa.queries import ConsumedChallenge
from mfa.webauthn.ceremony import CHALLENGE_BYTES, KeyHandle
from mfa.webauthn.models import AdminChallenge, EndUserChallenge, Passkey
from mfa.webauthn.responses import digest_of
from userflow.accounts.models import Account
from userflow.accounts.realms import Realm

REGISTRATION: Final = "registration"
AUTHENTICATION: Final = "authentication"
SIGN_IN: Final = "sign_in"
LIFETIME: Final = timedelta(minutes=5)
# Each new challenge deletes a few expired ones, so that the table stays small.
SWEPT_AT_ONCE: Final = 20

# The ORM has no DELETE ... RETURNING. Of two responses to one challenge, one gets the row.
_CONSUME = """
DELETE FROM {table} WHERE digest = %(digest)s AND expires_at > now()
  AND ((ceremony = %(ceremony)s AND user_id = %(user)s) OR (%(or_sign_in)s AND ceremony = 'sign_in'))
RETURNING ceremony, client_id
"""


def challenges_of(realm: Realm) -> type[AdminChallenge] | type[EndUserChallenge]:
    """Return the model of the realm's challenges."""
    model: type[AdminChallenge] | type[EndUserChallenge] = realm.model_of("webauthn_challenges")
    return model


def passkeys_of(realm: Realm) -> type[Passkey]:
    """Return the model of the realm's passkeys."""
    model: type[Passkey] = realm.model_of("passkeys")
    return model


def open_challenge(realm: Realm, ceremony: str, *, user_id: UUID | None = None, client_id: UUID | None = None) -> bytes:
    """Return a new challenge for this ceremony of this user (of no user yet for `sign_in`); only its hash is stored.

    Raises UnknownEmail (404) if the user is erased at the same moment.
    """
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    challenges = challenges_of(realm)._default_manager
    with unique_or(UnknownEmail), realm.atomic():
        expired = challenges.filter(expires_at__lte=now()).order_by("expires_at").select_for_update(skip_locked=True)
        challenges.filter(pk__in=expired.values("pk")[:SWEPT_AT_ONCE]).delete()
        challenges.create(
            digest=digest_of(challenge),
            ceremony=ceremony,
            user_id=user_id,
            client_id=client_id,
            expires_at=now() + LIFETIME,
        )
    return challenge


def consume_challenge(
    realm: Realm, challenge: bytes, *, ceremony: str, user_id: UUID | None = None, or_sign_in: bool = False
) -> ConsumedChallenge | None:
    """Consume a challenge of this ceremony and user, or with `or_sign_in` one of a passkey sign-in; None if it is not open.

    Call it outside a transaction: a response that fails has had its one attempt.
    """
    values = {"digest": digest_of(challenge), "ceremony": ceremony, "user": user_id, "or_sign_in": or_sign_in}
    row = fetch_row(realm.alias, _CONSUME.format(table=challenges_of(realm)._meta.db_table), values)
    return ConsumedChallenge(*row) if row else None


def find_passkey(realm: Realm, credential_id: bytes) -> Passkey | None:
    """Return the passkey of this credential id with its active user, or None."""
    passkeys = passkeys_of(realm)._default_manager.select_related("user")
    return passkeys.filter(credential_id=credential_id, user__active=True).first()


def usable_passkeys(realm: Realm, user_id: UUID, rp_id: str) -> QuerySet[Passkey]:
    """Return the user's passkeys that this relying party id can use."""
    model = passkeys_of(realm)
    return model._default_manager.filter(model.usable_with(rp_id), user_id=user_id)


def handles_of(realm: Realm, user: Account, rp_id: str) -> list[KeyHandle]:
    """Return how browsers find the user's passkeys of this relying party id, oldest first."""
    rows = usable_passkeys(realm, user.pk, rp_id).order_by("created_at").values_list("credential_id", "transports")
    return [KeyHandle(bytes(credential_id), tuple(transports)) for credential_id, transports in rows]
