"""The two statements of a verified second factor, TOTP code or passkey. The ORM would need eleven.

The first is committed before anything is compared, so that parallel guesses are not free. The second begins the
transaction of everything that a right code or response earns.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from uuid import UUID

import orjson

from identity_platform.api.email_addresses import email_key
from identity_platform.audit.origin import current_origin
from identity_platform.audit.writer import count_events
from identity_platform.crypto import hash_token
from identity_platform.postgresql.statements import fetch_row
from mfa.totp.models import TotpSecret
from mfa.users import find_user
from mfa.webauthn.models import Passkey
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_models import Ticket
from userflow.credentials import attempts, tickets
from userflow.errors import NotSignedInByTicket
from userflow.signin.caller import Caller, id_in

# Find the user, the login that waits, the TOTP secret and the passkey; count the attempt by the rule of `attempts.count`,
# and against the ticket; consume the challenge. A locked counter is not changed: `counted` is then empty, and neither
# ticket nor challenge is used. The ticket is locked before the counter, as where both are consumed.
_COUNT_ATTEMPT = """
WITH person AS (
  SELECT id, email, password, email_verified_at FROM {users}
  WHERE (id = %(user_id)s::uuid OR email_key = %(email_key)s::text) AND active
), login AS (
  SELECT t.digest, t.client_id, t.amr::text AS amr, CASE WHEN EXISTS (
      SELECT FROM (SELECT s.address FROM userflow_{realm}session s WHERE s.user_id = t.user_id
        ORDER BY s.created_at DESC LIMIT %(recent)s) AS recent
      WHERE nullif(recent.address, '')::inet <<= %(network)s::inet
    ) THEN %(login_known_network)s::text ELSE %(login)s::text END AS budget
  FROM userflow_{realm}ticket t JOIN person ON t.user_id = person.id
  WHERE t.digest = %(ticket)s::bytea AND t.purpose = %(second_step)s AND t.used_at IS NULL AND t.expires_at > now()
    AND t.wrong_codes < %(wrong_codes_allowed)s
  FOR NO KEY UPDATE OF t
), attempt AS (
  SELECT person.id, CASE WHEN person.id = %(own_id)s::uuid THEN %(signed_in)s::text
    ELSE coalesce(login.budget, %(unknown_network)s::text) END AS budget
  FROM person LEFT JOIN login ON true WHERE %(ticket)s::bytea IS NULL OR login.digest IS NOT NULL
), counted AS (
  INSERT INTO userflow_{realm}attempts AS a (subject, factor, caller, failures, updated_at, locked_until)
  SELECT attempt.id::text, %(factor)s::text, attempt.budget, 1, now(), NULL FROM attempt
  ON CONFLICT (subject, factor, caller) DO UPDATE SET
    failures = CASE WHEN a.updated_at < now() - %(forgotten)s::interval THEN 1 ELSE a.failures + 1 END,
    updated_at = now(),
    locked_until = CASE
      WHEN a.updated_at >= now() - %(forgotten)s::interval AND (a.failures + 1) %% %(free)s = 0
        AND (a.caller NOT IN (%(login)s, %(login_known_network)s) OR a.failures + 1 > %(grace)s)
      THEN now() + least(%(first_lock)s::interval * power(2, (a.failures + 1 - CASE
        WHEN a.caller IN (%(login)s, %(login_known_network)s) THEN %(grace)s ELSE 0 END) / %(free)s - 1),
        %(longest_lock)s::interval) END
  WHERE a.locked_until IS NULL OR a.locked_until <= now()
  RETURNING a.failures
), wrong_code AS (
  UPDATE userflow_{realm}ticket t SET wrong_codes = t.wrong_codes + 1 FROM login, counted WHERE t.digest = login.digest
), challenge AS (
  DELETE FROM mfa_{realm}challenge c USING attempt, counted
  WHERE c.digest = %(challenge_digest)s::bytea AND c.expires_at > now() AND (c.ceremony = 'authentication'
    AND c.user_id = attempt.id OR c.ceremony = 'sign_in' AND %(may_sign_in)s)
  RETURNING c.ceremony, c.client_id
)
SELECT person.id, person.email, person.email_verified_at, person.password, attempt.budget, counted.failures,
  login.client_id, login.amr, challenge.ceremony, challenge.client_id,
  s.id, s.secret_sealed, s.last_step,
  k.id, k.credential_id, k.public_key, k.backup_eligible, k.second_step_only
FROM person LEFT JOIN attempt ON true LEFT JOIN counted ON true LEFT JOIN login ON true LEFT JOIN challenge ON true
  LEFT JOIN mfa_{realm}totpsecret s ON s.user_id = person.id AND s.confirmed_at IS NOT NULL
  LEFT JOIN mfa_{realm}passkey k ON k.user_id = person.id AND k.credential_id = %(credential_id)s::bytea
"""
# The user's row first, then the ticket and the factor, as every change of factors does: other orders can deadlock. Of two
# requests at once, one changes the factor: a time step at or before the last one is not accepted again, and a counter of a
# passkey that is equal or lower, with either of the two not zero, means that a second authenticator signs with this key
# (WebAuthn Level 3 section 7.2 step 22). The use of a passkey after the password shows that the user has both.
_USE_FACTOR = """
WITH owner AS (
  SELECT id, password, email_verified_at FROM {users} WHERE id = %(user_id)s AND active FOR NO KEY UPDATE
), login AS (
  UPDATE userflow_{realm}ticket t SET used_at = now() FROM owner
  WHERE t.digest = %(ticket)s::bytea AND t.used_at IS NULL AND t.expires_at > now() RETURNING t.digest
), secret AS (
  UPDATE mfa_{realm}totpsecret s SET last_step = %(step)s::bigint, last_used_at = now() FROM owner
  WHERE s.id = %(secret_id)s::uuid AND s.user_id = owner.id AND s.confirmed_at IS NOT NULL
    AND (s.last_step IS NULL OR s.last_step < %(step)s::bigint) RETURNING s.id
), passkey AS (
  UPDATE mfa_{realm}passkey k SET sign_count = %(sign_count)s::bigint, backed_up = %(backed_up)s::boolean,
    last_used_at = now(), rp_id = coalesce(k.rp_id, %(rp_id)s::text),
    second_step_only = k.second_step_only AND %(ticket)s::bytea IS NULL FROM owner
  WHERE k.id = %(passkey_id)s::uuid AND k.user_id = owner.id AND (k.sign_count < %(sign_count)s::bigint
    OR k.sign_count = 0 AND %(sign_count)s::bigint = 0) RETURNING k.id
), verified AS (
  SELECT owner.id FROM owner
  WHERE %(audit)s::jsonb IS NOT NULL AND (EXISTS (SELECT FROM secret) OR EXISTS (SELECT FROM passkey))
), cleared_attempts AS (
  UPDATE userflow_{realm}attempts a SET failures = 0, locked_until = NULL FROM verified
  WHERE a.subject = verified.id::text AND a.factor = %(factor)s AND a.caller = %(budget)s
), audit_event AS (
  INSERT INTO {events} (action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id, details)
  SELECT 'factor.verified', 'success', %(actor_kind)s::text, %(actor_id)s::text, 'end_user', verified.id::text,
    %(address)s::text, %(request_id)s::text, %(audit)s::jsonb FROM verified
)
SELECT owner.password, owner.email_verified_at, login.digest, coalesce(secret.id, passkey.id) FROM owner
LEFT JOIN login ON true LEFT JOIN secret ON true LEFT JOIN passkey ON true
"""
# The columns that are read, in the order of the models; Django would load any other one on access.
_USER = ("id", "email", "email_verified_at", "password")
_SECRET = ("id", "secret_sealed", "last_step")
_PASSKEY = ("id", "credential_id", "public_key", "backup_eligible", "second_step_only")
_NO_USE = {"secret_id": None, "step": None, "passkey_id": None, "sign_count": None, "backed_up": None, "rp_id": None}
_RULE = {
    "second_step": tickets.SECOND_STEP,
    "wrong_codes_allowed": tickets.WRONG_CODES_ALLOWED,
    "recent": attempts.RECENT_SESSIONS,
    "login": attempts.LOGIN,
    "login_known_network": attempts.LOGIN_KNOWN_NETWORK,
    "signed_in": attempts.SIGNED_IN,
    "unknown_network": attempts.UNKNOWN_NETWORK,
    "grace": attempts.LOGIN_GRACE,
    **attempts.RULE,
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A counted attempt of a user: the login that it would complete, and the budget that it was counted against."""

    user: Account
    login: Ticket | None
    budget: str


@dataclass(frozen=True, slots=True)
class ConsumedChallenge:
    """A challenge that was open until it was consumed."""

    ceremony: str
    client_id: UUID | None


@dataclass(frozen=True, slots=True)
class UnverifiedAssertion:
    """What a response of an authenticator states, none of it verified."""

    credential_id: bytes | None = None
    challenge_digest: bytes | None = None
    # Whether the challenge may be that of a passkey sign-in, which names no user.
    may_sign_in: bool = False


_NO_ASSERTION = UnverifiedAssertion()


@dataclass(frozen=True, slots=True)
class CountedAttempt:
    """A counted attempt, and what it is compared with."""

    attempt: Attempt
    secret: TotpSecret | None = None
    passkey: Passkey | None = None
    challenge: ConsumedChallenge | None = None


def count_attempt(
    *,
    realm: Realm,
    email: str | None,
    caller: Caller,
    mfa_token: str | None,
    kind: str,
    assertion: UnverifiedAssertion = _NO_ASSERTION,
) -> CountedAttempt | None:
    """Count an attempt at a factor of this kind by the active user with this address, before the comparison.

    Without an address it is the caller's own user. Return None, with nothing counted, for an unknown user. Call it outside
    a transaction. Raises NotSignedInByTicket (401) if `mfa_token` is not valid or of another user, AttemptsLocked (429). An
    attempt that is locked out does not count against the ticket.
    """
    user = find_user(realm, email, caller, mfa_token=mfa_token) if realm is ADMINS else None
    own_id, digest = id_in(realm, caller.principal), hash_token(mfa_token) if mfa_token is not None else None
    values = {
        "user_id": user.pk if user is not None else own_id if email is None else None,
        "email_key": email_key(email) if realm is END_USERS and email is not None else None,
        "own_id": own_id,
        "ticket": digest,
        "network": attempts.caller_network(),
        "factor": kind,
        **asdict(assertion),
        **_RULE,
    }
    row = fetch_row(realm.alias, _statements(realm)[0], values)
    if row is None:
        return None
    *of_user, budget, failures, client_id, amr, ceremony, challenge_client = row[:10]
    secret, passkey = row[10:13], row[13:]
    user = user or EndUser.from_db(realm.alias, _USER, of_user)
    if budget is None:
        raise NotSignedInByTicket
    if failures is None:
        attempts.reject_locked(realm, str(user.pk), factor=kind, caller=budget)
    login = None
    if digest is not None:
        login = realm.tickets(digest=digest, user_id=user.pk, client_id=client_id, amr=orjson.loads(amr))
    return CountedAttempt(
        Attempt(user, login, budget),
        realm.model_of("totp_secrets").from_db(realm.alias, _SECRET, secret) if secret[0] is not None else None,
        realm.model_of("passkeys").from_db(realm.alias, _PASSKEY, passkey) if passkey[0] is not None else None,
        ConsumedChallenge(ceremony, challenge_client) if ceremony is not None else None,
    )


class FactorUnusable(Exception):
    """Another request has used or removed the factor in the meantime."""


@dataclass(frozen=True, slots=True)
class StepUse:
    """The time step of a right TOTP code."""

    secret_id: UUID
    step: int


@dataclass(frozen=True, slots=True)
class PasskeyUse:
    """The counter and flags of a verified response, and the relying party id that it was for."""

    passkey_id: UUID
    sign_count: int
    backed_up: bool
    rp_id: str


def use_factor(
    realm: Realm,
    attempt: Attempt,
    kind: str,
    use: StepUse | PasskeyUse | None,
    *,
    audit: Mapping[str, str] | None = None,
) -> None:
    """Lock the user, consume the ticket of the login, and use the factor if it is one of these.

    With `audit`, the details of the event `factor.verified` of an end user, it clears the counter and writes the event too;
    otherwise call it in the realm's transaction. Raises FactorUnusable, NotSignedInByTicket (401, the ticket was used
    meanwhile).
    """
    user, login = attempt.user, attempt.login
    values = {
        "user_id": user.pk,
        "ticket": login.digest if login is not None else None,
        "factor": kind,
        "budget": attempt.budget,
        **current_origin().audit_columns(),
        "audit": orjson.dumps(audit).decode() if audit is not None else None,
        **_NO_USE,
        **(asdict(use) if use is not None else {}),
    }
    row = fetch_row(realm.alias, _statements(realm)[1], values)
    if row is None:
        raise FactorUnusable if login is None else NotSignedInByTicket
    user.password, user.email_verified_at, ticket, factor = row
    if login is not None and ticket is None:
        raise NotSignedInByTicket
    if use is not None and factor is None:
        raise FactorUnusable
    if audit is not None and factor is not None:
        count_events("tenant", "factor.verified")


@cache
def _statements(realm: Realm) -> tuple[str, str]:
    tables = {"realm": "admin", "users": "userflow_adminuser", "events": "audit_platformevent"}
    if realm is END_USERS:
        tables = {"realm": "enduser", "users": "userflow_enduser", "events": "audit_tenantevent"}
    return _COUNT_ATTEMPT.format(**tables), _USE_FACTOR.format(**tables)
