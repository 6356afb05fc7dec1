"""Counting wrong tries: before the secret is compared, committed apart, so that parallel guesses are not free."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, NoReturn
from uuid import UUID

from django.conf import settings
from django.db import connections
from django.utils.timezone import now

from identity_platform.api import ratelimit
from identity_platform.api.client_address import network_of
from identity_platform.audit.origin import current_origin
from identity_platform.crypto import keyed_digest
from identity_platform.postgresql.parts import Part
from userflow.accounts.realms import Realm
from userflow.errors import AttemptsLocked, HashersBusy, TooManyFromAddress

FREE_TRIES = 5
FIRST_LOCK = timedelta(seconds=60)
LONGEST_LOCK = timedelta(minutes=15)
# A counter that rested this long begins anew.
FORGOTTEN_AFTER = timedelta(days=1)
PASSWORD = "password"
KNOWN, STRANGER = "known", "stranger"
# Whoever tries a password is somebody unknown. But from where the user has signed in before tries are counted apart, so
# that strangers elsewhere, with five wrong passwords every quarter of an hour, do not keep the user out there.
FAMILIAR = "familiar"
# Tries at a second step with the ticket of a login, from any network and from one where the user has signed in lately.
# They are counted apart from `known`: who has guessed the password, and so gets tickets, must not lock the user's own
# session out of step-up. Five wrong codes end a ticket; the budget limits what all tickets together may try.
LOGIN, HOME_LOGIN = "login", "home"
# Wrong codes with tickets before the first lock, beyond FREE_TRIES: a user who mistypes signs in again without a wait.
LOGIN_GRACE = 20
_FAMILIAR = (
    "EXISTS (SELECT FROM (SELECT address FROM {sessions} WHERE user_id = {user} ORDER BY created_at DESC LIMIT 20)"
    " AS lately WHERE nullif(lately.address, '')::inet <<= {network}::inet)"
)

# One statement: count and, at every fifth failure, lock for 60 s doubling to 15 min; the first 20 failures with tickets of
# logins do not lock. A locked row is not touched and gives no row back, however many callers come at once.
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
""".replace("{grace}", f"CASE WHEN a.caller IN ('{LOGIN}', '{HOME_LOGIN}') THEN {LOGIN_GRACE} ELSE 0 END")
_RULE: dict[str, str | int] = {
    "counted_forgotten": str(FORGOTTEN_AFTER),
    "counted_free": FREE_TRIES,
    "counted_first": str(FIRST_LOCK),
    "counted_longest": str(LONGEST_LOCK),
}


def subject_of(realm: Realm, who: object) -> str:
    """The key of a counter: a user's id, or a keyed digest of a name that was tried, so that the table names nobody.

    Ids stand beside it in the tables of sessions and tickets; as they are, one statement can find a user and count.
    """
    if isinstance(who, UUID):
        return str(who)
    return keyed_digest(str(who), key=realm.data_key(), purpose="attempts").hex()


def count(realm: Realm, who: object, *, factor: str, caller: str = STRANGER) -> None:
    """Count one try at `factor` of `who` (a user's id, or the name that was tried) before it is looked at.

    Must be called outside a transaction that the error would undo. Raises AttemptsLocked (429) while locked.
    """
    subject = subject_of(realm, who)
    tried = "VALUES (%(counted_subject)s, %(counted_factor)s, %(counted_caller)s, 1, now(), NULL)"
    who_and_how = {"counted_subject": subject, "counted_factor": factor, "counted_caller": caller}
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(_COUNT.format(table=realm.attempts._meta.db_table, tried=tried), {**who_and_how, **_RULE})
        if cursor.fetchone() is not None:
            return
    reject_locked(realm, subject, factor=factor, caller=caller)


def is_familiar(realm: Realm, *, user: str, network: str) -> str:
    """The condition, as SQL over these expressions, that the user has lately signed in from the network (None: no)."""
    return _FAMILIAR.format(sessions=realm.sessions._meta.db_table, user=user, network=network)


def login_budget(realm: Realm, *, user: str, network: str) -> str:
    """The budget, as SQL over these expressions, for tries with the ticket of the user's login from the network."""
    return f"CASE WHEN {is_familiar(realm, user=user, network=network)} THEN '{HOME_LOGIN}' ELSE '{LOGIN}' END"


def caller_network() -> str | None:
    """The network that the caller's address belongs to; None for a caller without one."""
    address = current_origin().address
    return network_of(address) if address else None


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


def reject_locked(realm: Realm, subject: str, *, factor: str, caller: str) -> NoReturn:
    """Raise AttemptsLocked (429) a try that was not counted, with the wait that is left."""
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(
            f"SELECT locked_until FROM {realm.attempts._meta.db_table}"
            " WHERE subject = %s AND factor = %s AND caller = %s",
            [subject, factor, caller],
        )
        row = cursor.fetchone()
    wait = (row[0] - now()).total_seconds() if row and row[0] else 1.0
    raise AttemptsLocked(retry_after=max(0, int(wait)) + 1)


# The lock that the fifth try has set goes with it; one that was set at another number is not touched.
_GIVE_BACK = """
UPDATE {table} SET failures = failures - 1,
  locked_until = CASE WHEN failures %% %(free)s = 0 THEN NULL ELSE locked_until END
WHERE subject = %(subject)s AND factor = %(factor)s AND caller = %(caller)s AND failures > 0
"""


@contextmanager
def counted(realm: Realm, who: object, *, factor: str, caller: str = STRANGER) -> Iterator[None]:
    """`count`, then `given_back_when_busy`. Raises AttemptsLocked (429) while locked."""
    count(realm, who, factor=factor, caller=caller)
    with given_back_when_busy(realm, who, factor=factor, caller=caller):
        yield


@contextmanager
def given_back_when_busy(realm: Realm, who: object, *, factor: str, caller: str = STRANGER) -> Iterator[None]:
    """The one try that was counted is given back when HashersBusy says that it was never looked at.

    Given back, not cleared: what others have guessed wrong still counts.
    """
    try:
        yield
    except HashersBusy:
        with connections[realm.alias].cursor() as cursor:
            cursor.execute(
                _GIVE_BACK.format(table=realm.attempts._meta.db_table),
                {"subject": subject_of(realm, who), "factor": factor, "caller": caller, "free": FREE_TRIES},
            )
        raise


def clear(realm: Realm, who: object, *, factor: str, caller: str = STRANGER) -> None:
    """The try was right: begin anew."""
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {realm.attempts._meta.db_table} WHERE subject = %s AND factor = %s AND caller = %s",
            [subject_of(realm, who), factor, caller],
        )


def clearing(realm: Realm, who: object, *, factor: str, source: str, caller: str = STRANGER) -> Part:
    """The same as a part of another statement, done if the part `source` has a row."""
    return Part(
        "cleared",
        f"DELETE FROM {realm.attempts._meta.db_table} USING {source} WHERE subject = %(cleared_subject)s"
        " AND factor = %(cleared_factor)s AND caller = %(cleared_caller)s",
        {"cleared_subject": subject_of(realm, who), "cleared_factor": factor, "cleared_caller": caller},
    )


def forget(realm: Realm, who: object) -> None:
    """Drop every counter of a user who is erased."""
    realm.attempts._default_manager.filter(subject=subject_of(realm, who)).delete()


def limit_address(name: str) -> None:
    """Count one request of the caller's address against settings.LIMITS[name]; TooManyFromAddress (429) over it."""
    most, seconds = settings.LIMITS[name]
    _reject(ratelimit.count(group=name, key=_network(), limit=most, period=seconds))


def limit_guessing_address(name: str) -> None:
    """`limit_address` and `reject_guessing_address` in one question to Valkey."""
    counted, guesses = (ratelimit.Limit(group, _network(), *settings.LIMITS[group]) for group in (name, "wrong_secret"))
    for usage in ratelimit.count_and_peek(counted, guesses):
        _reject(usage)


def reject_guessing_or_listing_address() -> None:
    """`reject_guessing_address` and `reject_listing_address` in one question to Valkey."""
    one, other = (
        ratelimit.Limit(name, _network(), *settings.LIMITS[name]) for name in ("wrong_secret", "unknown_user")
    )
    for usage in ratelimit.peek_both(one, other):
        _reject(usage)


def reject_listing_address() -> None:
    """TooManyFromAddress when the caller's address has asked for too many users that are not there.

    Ask before looking a user up: a limit that only those calls meet that name nobody would tell who exists.
    """
    most, seconds = settings.LIMITS["unknown_user"]
    _reject(ratelimit.peek(group="unknown_user", key=_network(), limit=most, period=seconds))


def reject_guessing_address() -> None:
    """TooManyFromAddress when the caller's address has sent too many wrong secrets lately."""
    most, seconds = settings.LIMITS["wrong_secret"]
    _reject(ratelimit.peek(group="wrong_secret", key=_network(), limit=most, period=seconds))


def count_wrong_secret() -> None:
    """One more wrong secret from the caller's address."""
    most, seconds = settings.LIMITS["wrong_secret"]
    ratelimit.count(group="wrong_secret", key=_network(), limit=most, period=seconds)


def _network() -> str:
    return caller_network() or "local"


def _reject(usage: Any) -> None:
    if usage.limited:
        raise TooManyFromAddress(retry_after=usage.retry_after)
