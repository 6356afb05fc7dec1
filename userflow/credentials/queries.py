"""The two statements of a second step: count the attempt; then, in the transaction of a success, use the ticket up.

The tables of admin users and end users differ in their names only.
"""

import orjson
from django.db import connections

from identity_platform.crypto import hash_token
from identity_platform.postgresql.values import SqlValue
from userflow.accounts.models import Account
from userflow.accounts.realms import Realm
from userflow.accounts.session_models import UserTicket
from userflow.credentials import attempts, tickets
from userflow.errors import NotSignedInByTicket

# Find the ticket, count the attempt against the user by the rule of `attempts.count`, and then against the ticket. A locked
# counter is not changed and counts no attempt against the ticket. The ticket is locked first, as a success does.
_COUNT_ATTEMPT = """
WITH ticket AS (
  SELECT t.digest, t.client_id, t.amr, t.user_id, coalesce(%(budget)s::text,
    CASE WHEN EXISTS (
      SELECT FROM (SELECT s.address FROM {sessions} s WHERE s.user_id = t.user_id
        ORDER BY s.created_at DESC LIMIT %(recent)s) AS recent
      WHERE nullif(recent.address, '')::inet <<= %(network)s::inet
    ) THEN %(known_network)s::text ELSE %(unknown_network)s::text END) AS caller
  FROM {tickets} t
  WHERE t.digest = %(digest)s AND t.purpose = %(purpose)s AND t.user_id = %(user_id)s AND t.used_at IS NULL
    AND t.expires_at > now() AND t.wrong_codes < %(wrong_codes_allowed)s
  FOR NO KEY UPDATE
), counted AS (
  INSERT INTO {attempts} AS a (subject, factor, caller, failures, updated_at, locked_until)
  SELECT ticket.user_id::text, %(factor)s::text, ticket.caller, 1, now(), NULL FROM ticket
  ON CONFLICT (subject, factor, caller) DO UPDATE SET
    failures = CASE WHEN a.updated_at < now() - %(forgotten)s::interval THEN 1 ELSE a.failures + 1 END,
    updated_at = now(),
    locked_until = CASE
      WHEN a.updated_at >= now() - %(forgotten)s::interval AND (a.failures + 1) %% %(free)s = 0
        AND a.failures + 1 > %(grace)s
      THEN now() + least(%(first_lock)s::interval * power(2, (a.failures + 1 - %(grace)s) / %(free)s - 1),
        %(longest_lock)s::interval) END
  WHERE a.locked_until IS NULL OR a.locked_until <= now()
  RETURNING a.failures
), tried AS (
  UPDATE {tickets} t SET wrong_codes = t.wrong_codes + 1 FROM ticket, counted WHERE t.digest = ticket.digest
)
SELECT ticket.client_id, ticket.amr::text, ticket.caller, counted.failures FROM ticket LEFT JOIN counted ON true
"""
# The user first, then the ticket: other orders can deadlock.
_LOCK_AND_CONSUME = """
WITH owner AS (
  SELECT * FROM {users} WHERE id = %(user_id)s AND active FOR NO KEY UPDATE
), used AS (
  UPDATE {tickets} t SET used_at = now() FROM owner
  WHERE t.digest = %(digest)s AND t.user_id = owner.id AND t.used_at IS NULL AND t.expires_at > now()
  RETURNING t.digest
)
SELECT owner.* FROM owner, used
"""


def count_second_step(
    realm: Realm, user: Account, token: str, *, factor: str, own_session: bool
) -> tuple[UserTicket, str]:
    """Count an attempt at the second step of a login before the factor is compared; return its ticket and the budget.

    `own_session` tells that the caller sends an access token of the user too. Raises NotSignedInByTicket (401) if the ticket
    is not valid or belongs to another user, AttemptsLocked (429); a locked attempt does not count against the ticket.
    """
    values: dict[str, SqlValue] = {
        "digest": hash_token(token),
        "purpose": tickets.SECOND_STEP,
        "user_id": user.pk,
        "wrong_codes_allowed": tickets.WRONG_CODES_ALLOWED,
        "factor": factor,
        "budget": attempts.SIGNED_IN if own_session else None,
        "network": attempts.caller_network(),
        "recent": attempts.RECENT_SESSIONS,
        "known_network": attempts.LOGIN_KNOWN_NETWORK,
        "unknown_network": attempts.LOGIN,
        "grace": 0 if own_session else attempts.LOGIN_GRACE,
        **attempts.RULE,
    }
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(_named(realm, _COUNT_ATTEMPT), values)
        row = cursor.fetchone()
    if row is None:
        raise NotSignedInByTicket
    client_id, amr, budget, failures = row
    if failures is None:
        attempts.reject_locked(realm, str(user.pk), factor=factor, caller=budget)
    ticket = realm.tickets(
        digest=values["digest"],
        purpose=tickets.SECOND_STEP,
        user_id=user.pk,
        client_id=client_id,
        amr=orjson.loads(amr),
    )
    return ticket, budget


def lock_and_consume(realm: Realm, ticket: UserTicket) -> Account:
    """Lock the ticket's user until the transaction ends and use the ticket up; return the user as stored now.

    Of two callers at once one wins. Raises NotSignedInByTicket (401) for the other one, and if the user is inactive by now.
    """
    values: dict[str, SqlValue] = {"user_id": ticket.user_id, "digest": bytes(ticket.digest)}
    for user in realm.users.objects.raw(_named(realm, _LOCK_AND_CONSUME), values):
        return user
    raise NotSignedInByTicket


def _named(realm: Realm, statement: str) -> str:
    return statement.format(
        users=realm.users._meta.db_table,
        sessions=realm.sessions._meta.db_table,
        tickets=realm.tickets._meta.db_table,
        attempts=realm.attempts._meta.db_table,
    )
