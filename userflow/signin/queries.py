"""The two statements of an end user's password login. The ORM would need eleven.

The first is committed before the password is compared. The second is a transaction of its own: everything that a right
password earns is written, or nothing. Values of new rows come from unsaved models, so that defaults stand in the models.
"""

import orjson

from identity_platform.audit.origin import current_origin
from identity_platform.audit.writer import count_events
from identity_platform.crypto import hash_token
from identity_platform.postgresql.statements import fetch_row
from identity_platform.postgresql.values import SqlValue
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserRefreshToken, EndUserSession
from userflow.credentials import attempts, tickets
from userflow.credentials.attempts import Counter
from userflow.errors import WrongCredentials
from userflow.sessions.queries import Rights, column_values, rights_in

# Columns that a login reads, in the order of the model; Django would load any other one on access.
_COLUMNS = ("id", "email", "email_verified_at", "active", "password", "mfa_methods", "name")
# Find the user and count the attempt, by the rule of `attempts.count` without its grace for tickets. An unknown address is
# counted under a digest of the address. A locked counter is not changed: `counted` is then empty.
_COUNT_PASSWORD_ATTEMPT = f"""
WITH person AS (
  SELECT u.id, u.email, u.name, u.active, u.password, u.mfa_methods, u.email_verified_at,
    CASE WHEN EXISTS (
      SELECT FROM (SELECT s.address FROM userflow_endusersession s WHERE s.user_id = u.id
        ORDER BY s.created_at DESC LIMIT %(recent)s) AS recent
      WHERE nullif(recent.address, '')::inet <<= %(network)s::inet
    ) THEN %(known_network)s::text ELSE %(unknown_network)s::text END AS caller
  FROM userflow_enduser u WHERE u.email_key = %(email_key)s
), counted AS (
  INSERT INTO userflow_enduserattempts AS a (subject, factor, caller, failures, updated_at, locked_until)
  SELECT coalesce(person.id::text, %(unknown_user)s::text), %(factor)s::text,
    coalesce(person.caller, %(unknown_network)s::text), 1, now(), NULL
  FROM (SELECT) AS one LEFT JOIN person ON true
  ON CONFLICT (subject, factor, caller) DO UPDATE SET
    failures = CASE WHEN a.updated_at < now() - %(forgotten)s::interval THEN 1 ELSE a.failures + 1 END,
    updated_at = now(),
    locked_until = CASE
      WHEN a.updated_at >= now() - %(forgotten)s::interval AND (a.failures + 1) %% %(free)s = 0
      THEN now() + least(%(first_lock)s::interval * power(2, (a.failures + 1) / %(free)s - 1),
        %(longest_lock)s::interval) END
  WHERE a.locked_until IS NULL OR a.locked_until <= now()
  RETURNING a.failures, {attempts.COMMIT_WITHOUT_WAITING}
)
SELECT counted.failures, person.caller, person.id, person.email, person.email_verified_at, person.active,
  person.password, person.mfa_methods, person.name
FROM (SELECT) AS one LEFT JOIN person ON true LEFT JOIN counted ON true
"""
# The user first: its row lock makes a change of password at the same moment wait, or be seen here. The session has the
# window and ticket of a user without a factor. A sign-in closes the windows of other networks: their opener need not be the
# user.
_COMPLETE_LOGIN = """
WITH owner AS (
  UPDATE userflow_enduser SET last_login = %(session_created_at)s
  WHERE id = %(session_user_id)s AND active AND password = %(password)s AND mfa_methods = '[]' RETURNING id
), new_session AS (
  INSERT INTO userflow_endusersession (id, user_id, client_id, amr, acr, auth_time, created_at, last_used_at, expires_at,
    ended_at, end_reason, address, user_agent, browser_digest, enrollment_digest, enrollment_network)
  SELECT %(session_id)s::uuid, owner.id, %(session_client_id)s::uuid, %(session_amr)s::jsonb, %(session_acr)s::text,
    %(session_auth_time)s::timestamptz, %(session_created_at)s::timestamptz, %(session_last_used_at)s::timestamptz,
    %(session_expires_at)s::timestamptz, %(session_ended_at)s::timestamptz, %(session_end_reason)s::text,
    %(session_address)s::text, %(session_user_agent)s::text, %(session_browser_digest)s::bytea,
    %(session_enrollment_digest)s::bytea, %(session_enrollment_network)s::text FROM owner
  RETURNING id
), refresh_token AS (
  INSERT INTO userflow_enduserrefreshtoken (digest, issued_at, used_at, successor_sealed, session_id)
  SELECT %(refresh_digest)s::bytea, %(refresh_issued_at)s::timestamptz, %(refresh_used_at)s::timestamptz,
    %(refresh_successor_sealed)s::bytea, new_session.id FROM new_session
  WHERE %(refresh_digest)s::bytea IS NOT NULL
), closed_windows AS (
  DELETE FROM userflow_enduserenrollmentwindow w USING owner
  WHERE w.user_id = owner.id AND w.network <> %(session_enrollment_network)s::text
), closed_windows_of_sessions AS (
  UPDATE userflow_endusersession s SET enrollment_network = '' FROM owner
  WHERE s.user_id = owner.id AND s.created_at > now() - interval '1 day'
    AND s.enrollment_network NOT IN ('', %(session_enrollment_network)s::text)
), cleared_attempts AS (
  UPDATE userflow_enduserattempts a SET failures = 0, locked_until = NULL FROM owner
  WHERE a.subject = owner.id::text AND a.factor = %(factor)s AND a.caller = %(caller)s
), audit_event AS (
  INSERT INTO audit_tenantevent (action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id, details)
  SELECT 'signin.succeeded', 'success', %(actor_kind)s::text, %(actor_id)s::text, 'user', owner.id::text,
    %(address)s::text, %(request_id)s::text, jsonb_build_object('amr', %(session_amr)s::jsonb) FROM owner
)
SELECT
  (SELECT coalesce(json_agg(json_build_array(r.name, r.permissions)), '[]')::text FROM userflow_role r
    WHERE r.id IN (SELECT b.role_id FROM userflow_rolebinding b WHERE b.user_id = owner.id
      UNION SELECT gr.role_id FROM userflow_groupmembership m JOIN userflow_group_roles gr ON gr.group_id = m.group_id
      WHERE m.user_id = owner.id)),
  (SELECT coalesce(json_agg(g.name), '[]')::text FROM userflow_groupmembership m
    JOIN userflow_group g ON g.id = m.group_id WHERE m.user_id = owner.id)
FROM owner
"""


def count_password_attempt(email_key: str) -> tuple[EndUser | None, str]:
    """Return the end user with this address (`email_key`), active or not, and count an attempt at the password.

    An attempt at an unknown address is counted under the address. The second value is the budget that it was counted
    against. Raises AttemptsLocked (429).
    """
    unknown_user = attempts.subject_of(END_USERS, email_key)
    values = {
        "email_key": email_key,
        "network": attempts.caller_network(),
        "recent": attempts.RECENT_SESSIONS,
        "known_network": attempts.KNOWN_NETWORK,
        "unknown_network": attempts.UNKNOWN_NETWORK,
        "unknown_user": unknown_user,
        "factor": attempts.PASSWORD,
        **attempts.RULE,
    }
    failures, caller, *row = fetch_row("tenant", _COUNT_PASSWORD_ATTEMPT, values)
    user_columns = dict(zip(_COLUMNS, row, strict=True))
    caller = caller or attempts.UNKNOWN_NETWORK
    if failures is None:
        subject = str(user_columns["id"] or unknown_user)
        attempts.reject_locked(END_USERS, subject, factor=attempts.PASSWORD, caller=caller)
    if user_columns["id"] is None:
        return None, caller
    user_columns["mfa_methods"] = orjson.loads(user_columns["mfa_methods"])
    return EndUser.from_db("tenant", list(user_columns), list(user_columns.values())), caller


def complete_login(
    user: EndUser, session: EndUserSession, refresh_token: str | None, *, counter: Counter
) -> tuple[Rights, str]:
    """Store the unsaved session of a right password, audit it, clear the attempts of `counter`, and open enrollment.

    Return the user's rights, and the ticket for the header X-Enrollment-Ticket. For a user without a factor. Raises
    WrongCredentials, with nothing written, when the password was replaced since it was compared, the user was deactivated,
    or has a factor by now.
    """
    enrollment = tickets.let_enroll(session)
    values: dict[str, SqlValue] = {
        **column_values(session, "session"),
        **column_values(EndUserRefreshToken(digest=hash_token(refresh_token) if refresh_token else None), "refresh"),
        "password": user.password,
        "factor": counter.factor,
        "caller": counter.caller,
        **current_origin().audit_columns(),
    }
    row = fetch_row("tenant", _COMPLETE_LOGIN, values)
    if row is None:
        raise WrongCredentials
    count_events("tenant", "signin.succeeded")
    return rights_in(*row), enrollment
