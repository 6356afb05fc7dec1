"""The composed statements of second factors. Goes when `mfa/verification.py` no longer needs it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import orjson
from django.db import connections
from django.utils.timezone import now

from identity_platform.audit.origin import current_origin
from identity_platform.crypto import hash_token
from identity_platform.postgresql.parts import Part, together
from tenants import lookup
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.session_models import UserTicket
from userflow.accounts.session_policy import acr_of
from userflow.credentials import email_verification
from userflow.credentials.attempts import (
    FIRST_LOCK,
    FORGOTTEN_AFTER,
    FREE_TRIES,
    LOGIN,
    LOGIN_GRACE,
    LOGIN_KNOWN_NETWORK,
    LONGEST_LOCK,
    UNKNOWN_NETWORK,
    subject_of,
)
from userflow.credentials.tickets import WRONG_CODES_ALLOWED
from userflow.errors import EmailNotVerified, WrongCredentials
from userflow.sessions.issue import TokenPair, TokenSubject, access_token, limits_of
from userflow.sessions.queries import GROUPS_OF_END_USER, ROLES_OF_ADMIN, ROLES_OF_END_USER, groups_in, roles_in
from userflow.sessions.refresh_tokens import new_refresh_token

_FAMILIAR = (
    "EXISTS (SELECT FROM (SELECT address FROM {sessions} WHERE user_id = {user} ORDER BY created_at DESC LIMIT 20)"
    " AS lately WHERE nullif(lately.address, '')::inet <<= {network}::inet)"
)

_COUNT = """
INSERT INTO {table} AS a (subject, factor, caller, failures, updated_at, locked_until)
{tried}
ON CONFLICT (subject, factor, caller) DO UPDATE SET
  failures = CASE WHEN a.updated_at < now() - %(counted_forgotten)s::interval THEN 1 ELSE a.failures + 1 END,
  updated_at = now(),
  locked_until = CASE
    WHEN a.updated_at >= now() - %(counted_forgotten)s::interval AND (a.failures + 1) %% %(counted_free)s = 0
      AND a.failures + 1 > {grace}
    THEN now() + least(%(counted_first)s::interval * power(2, (a.failures + 1 - {grace}) / %(counted_free)s - 1),
      %(counted_longest)s::interval) END
WHERE a.locked_until IS NULL OR a.locked_until <= now()
RETURNING caller
""".replace("{grace}", f"CASE WHEN a.caller IN ('{LOGIN}', '{LOGIN_KNOWN_NETWORK}') THEN {LOGIN_GRACE} ELSE 0 END")
_RULE: dict[str, str | int] = {
    "counted_forgotten": str(FORGOTTEN_AFTER),
    "counted_free": FREE_TRIES,
    "counted_first": str(FIRST_LOCK),
    "counted_longest": str(LONGEST_LOCK),
}


def is_familiar(realm: Realm, *, user: str, network: str) -> str:
    """The condition, as SQL over these expressions, that the user has lately signed in from the network (None: no)."""
    return _FAMILIAR.format(sessions=realm.sessions._meta.db_table, user=user, network=network)


def login_budget(realm: Realm, *, user: str, network: str) -> str:
    """The budget, as SQL over these expressions, for tries with the ticket of the user's login from the network."""
    return f"CASE WHEN {is_familiar(realm, user=user, network=network)} THEN '{LOGIN_KNOWN_NETWORK}' ELSE '{LOGIN}' END"


def is_locked(realm: Realm, *, subject: str, factor: str, caller: str) -> str:
    """The condition, as SQL over these expressions, that a counter is locked as the statement sees it."""
    return (
        f"EXISTS (SELECT FROM {realm.attempts._meta.db_table} a WHERE a.subject = {subject} AND a.factor = {factor}"
        f" AND a.caller = {caller} AND a.locked_until > now())"
    )


# Whoever is found, and where nobody is, the name that was tried; no row where that is not to be counted either.
PERSON: Final = "person"
_BY_NAME = """
SELECT coalesce(person.id::text, %(tried_nobody)s::text) AS subject, coalesce(person.caller, 'stranger') AS caller
FROM (SELECT) AS one LEFT JOIN person ON true WHERE coalesce(person.id::text, %(tried_nobody)s::text) IS NOT NULL
"""


def trying(*, nobody: str | None) -> Part:
    """Gives `subject` and `caller` for `counting`: of the part PERSON (`id`, `caller`), or if it has no row of `nobody`."""
    return Part("tried", _BY_NAME, {"tried_nobody": nobody})


def counting(realm: Realm, *, factor: str, source: str) -> Part:
    """The same as a part of another statement, for the `subject` and `caller` that the part `source` gives.

    Gives `caller` back, or no row while locked; then call `reject_locked`.
    """
    tried = f"SELECT subject, %(counted_factor)s::text, caller, 1, now(), NULL FROM {source}"
    sql = _COUNT.format(table=realm.attempts._meta.db_table, tried=tried)
    return Part("counted", sql, {"counted_factor": factor, **_RULE})


def clearing(realm: Realm, who: object, *, factor: str, source: str, caller: str = UNKNOWN_NETWORK) -> Part:
    """The same as a part of another statement, done if the part `source` has a row."""
    return Part(
        "cleared",
        f"DELETE FROM {realm.attempts._meta.db_table} USING {source} WHERE subject = %(cleared_subject)s"
        " AND factor = %(cleared_factor)s AND caller = %(cleared_caller)s",
        {"cleared_subject": subject_of(realm, who), "cleared_factor": factor, "cleared_caller": caller},
    )


WAITING: Final = "waiting"
_WAITING = """
SELECT t.digest, t.user_id, t.client_id, t.amr, {source}.caller FROM {table} t JOIN {source} ON t.user_id = {source}.id
WHERE t.digest = %(waiting_digest)s AND t.purpose = %(waiting_purpose)s AND t.used_at IS NULL AND t.expires_at > now()
  AND t.wrong_codes < %(waiting_allowed)s
"""
_TRIED = """
UPDATE {table} t SET wrong_codes = t.wrong_codes + 1 FROM waiting
WHERE t.digest = waiting.digest AND t.used_at IS NULL AND t.wrong_codes < %(tried_allowed)s AND NOT {locked}
RETURNING waiting.user_id::text AS subject, waiting.caller
"""


def waiting(realm: Realm, token: str, purpose: str, *, source: str) -> Part:
    """`find_ticket` as a part of another statement, for the user whose `id` the part `source` gives.

    `source` also gives `caller`, the budget for tries with the ticket.
    """
    values = {"waiting_digest": hash_token(token), "waiting_purpose": purpose, "waiting_allowed": WRONG_CODES_ALLOWED}
    return Part(WAITING, _WAITING.format(table=realm.tickets._meta.db_table, source=source), values)


def trying_ticket(realm: Realm, *, factor: str) -> Part:
    """`count_wrong_code` as a part behind `waiting`, unless the user's counter of `factor` is locked.

    Gives `subject` and `caller` for `attempts.counting`.
    """
    locked = is_locked(realm, subject="waiting.user_id::text", factor="%(tried_factor)s", caller="waiting.caller")
    values = {"tried_allowed": WRONG_CODES_ALLOWED, "tried_factor": factor}
    return Part("tried", _TRIED.format(table=realm.tickets._meta.db_table, locked=locked), values)


def spending(realm: Realm, ticket: UserTicket, *, source: str) -> Part:
    """`consume_ticket` as a part of another statement, whose part `source` has locked the ticket and found it good."""
    return Part(
        "ticket_spent",
        f"UPDATE {realm.tickets._meta.db_table} SET used_at = now() FROM {source} WHERE digest = %(ticket_spent_digest)s",
        {"ticket_spent_digest": ticket.digest},
    )


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


def _open_session(
    realm: Realm,
    subject: TokenSubject,
    *,
    amr: tuple[str, ...],
    tenant: lookup.TenantContext | None,
    user_agent: str = "",
    password: str | None = None,
    password_only: bool = False,
    given: Part | None = None,
    also: Sequence[Part] = (),
) -> TokenPair:
    """A new session of the subject and its first pair of tokens, with the roles and groups as stored now: one statement.

    `password` is the hash that the sign-in has seen: if it was replaced since, or the user switched off, there is no
    session, nor where the part `given` has no row, nor with `password_only` for a user who has a factor by now. `also` is
    what else the sign-in writes, in the same statement; it hangs on the part STANDING, which gives the user's `id`.
    Raises WrongCredentials; then nothing is written.
    """
    moment = now()
    limits = limits_of(subject, tenant)
    expires = moment + timedelta(seconds=min(limits.idle, limits.absolute))
    refresh_token = new_refresh_token(realm, subject.tenant_id)
    standing = {
        "standing_now": moment,
        "standing_user": subject.user_id,
        "standing_password": password,
        "standing_password_only": password_only,
    }
    session = {
        "session_client": subject.client_id,
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
    subject = replace(subject, roles=names, permissions=tuple(sorted(permissions)), groups=groups_in(found_groups))
    access, seconds = access_token(subject, session_id, amr=amr, auth_time=moment, ends=expires, tenant=tenant)
    return TokenPair(access, refresh_token, seconds, session_id)


def complete_sign_in(
    realm: Realm,
    user: Any,
    subject: TokenSubject,
    *,
    amr: tuple[str, ...],
    tenant: lookup.TenantContext | None,
    user_agent: str = "",
    given: Part | None = None,
    also: Sequence[Part] = (),
) -> TokenPair:
    """`actions.complete_sign_in` with the writes of `also`, if the part `given` has a row: one statement."""
    if email_verification.is_unverified(user, tenant):
        raise EmailNotVerified
    event = realm.recording(
        "signin.succeeded",
        source=STANDING,
        target=("user", user.pk),
        tenant_id=subject.tenant_id,
        details={"amr": amr},
    )
    return _open_session(
        realm,
        subject,
        amr=amr,
        tenant=tenant,
        user_agent=user_agent,
        password=user.password,
        given=given,
        also=[*also, event],
    )
