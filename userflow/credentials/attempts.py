"""Count failed attempts at a secret. An attempt is counted and committed before the secret is compared."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Final, NoReturn
from uuid import UUID

from django.conf import settings
from django.db import connections
from django.db.models import Case, F, Q, When
from django.db.models.functions import Mod
from django.db.models.lookups import Exact
from django.utils.timezone import now

from identity_platform.api import ratelimit
from identity_platform.api.client_address import network_of
from identity_platform.audit.origin import current_origin
from identity_platform.crypto import keyed_digest
from identity_platform.postgresql.statements import fetch_row
from userflow.accounts.realms import Realm
from userflow.accounts.session_models import Attempts
from userflow.errors import AttemptsLocked, HashersBusy, NotSignedInByTicket, TooManyFromAddress

FREE_TRIES = 5
FIRST_LOCK = timedelta(seconds=60)
LONGEST_LOCK = timedelta(minutes=15)
# A counter without an attempt for this long starts again at 1.
FORGOTTEN_AFTER = timedelta(days=1)
PASSWORD = "password"
# The six digits of a mail that verifies an address.
EMAIL_CODE = "email"
# The budgets (column `caller`). A caller with the user's own session has one, and so has every other caller.
SIGNED_IN, UNKNOWN_NETWORK = "known", "stranger"
# Passwords from a network where the user has signed in recently. Five wrong passwords every 15 minutes from elsewhere then
# do not lock the user out.
KNOWN_NETWORK = "familiar"
# Second steps with the ticket of a login, from any network and from one where the user has signed in recently. They do not
# count against `known`: an attacker who has guessed the password gets tickets, and must not lock the user's own session
# out of step-up. Five wrong codes end a ticket; this budget limits all tickets together.
LOGIN, LOGIN_KNOWN_NETWORK = "login", "home"
# Wrong codes with tickets before the first lock, beyond FREE_TRIES: a user who mistypes signs in again without a wait.
LOGIN_GRACE = 20
RECENT_SESSIONS = 20

# Count, and at every fifth failure lock for 60 s, doubling to 15 min; the first 20 failures with tickets of logins do not
# lock. A locked row is not changed and not returned, however many callers come at once. The ORM has no conditional upsert.
# `userflow.signin.queries` counts the password of a login in the same way.
_COUNT = """
INSERT INTO {table} AS a (subject, factor, caller, failures, updated_at, locked_until)
VALUES (%(subject)s, %(factor)s, %(caller)s, 1, now(), NULL)
ON CONFLICT (subject, factor, caller) DO UPDATE SET
  failures = CASE WHEN a.updated_at < now() - %(forgotten)s::interval THEN 1 ELSE a.failures + 1 END,
  updated_at = now(),
  locked_until = CASE
    WHEN a.updated_at >= now() - %(forgotten)s::interval AND (a.failures + 1) %% %(free)s = 0
      AND a.failures + 1 > %(grace)s
    THEN now() + least(%(first_lock)s::interval * power(2, (a.failures + 1 - %(grace)s) / %(free)s - 1),
      %(longest_lock)s::interval) END
WHERE a.locked_until IS NULL OR a.locked_until <= now()
RETURNING failures, {commit}
"""
# In a statement that is its own transaction: its commit does not wait for the disk. Every other connection sees the count, and
# the end of this process does not undo it. Only the end of the database server does, of the last fraction of a second:
# of attempts whose result was not returned, since each result, right or wrong, is stored by a commit that waits.
COMMIT_WITHOUT_WAITING: Final = "set_config('synchronous_commit', 'off', true)"
RULE: Final[dict[str, str | int]] = {
    "forgotten": str(FORGOTTEN_AFTER),
    "free": FREE_TRIES,
    "first_lock": str(FIRST_LOCK),
    "longest_lock": str(LONGEST_LOCK),
}


@dataclass(frozen=True, slots=True)
class Counter:
    """A user's counter of attempts at a factor: one for each budget (`caller`)."""

    factor: str
    caller: str


def subject_of(realm: Realm, user_id_or_name: object) -> str:
    """Return the key of a counter: a user's id, or a keyed digest of a name, so that the table stores no names.

    Ids are not hashed: they stand in the tables of sessions and tickets too.
    """
    if isinstance(user_id_or_name, UUID):
        return str(user_id_or_name)
    return keyed_digest(str(user_id_or_name), key=realm.data_key(), purpose="attempts").hex()


def count(realm: Realm, user_id_or_name: object, *, factor: str, caller: str = UNKNOWN_NETWORK) -> None:
    """Count one attempt at `factor` of a user, by id or by the name in the request, before the secret is compared.

    Call it outside a transaction that a rejection would roll back. Raises AttemptsLocked (429) while locked.
    """
    subject = subject_of(realm, user_id_or_name)
    grace = LOGIN_GRACE if caller in (LOGIN, LOGIN_KNOWN_NETWORK) else 0
    counted = {"subject": subject, "factor": factor, "caller": caller, "grace": grace, **RULE}
    commit = "NULL" if connections[realm.alias].in_atomic_block else COMMIT_WITHOUT_WAITING
    if fetch_row(realm.alias, _COUNT.format(table=realm.attempts._meta.db_table, commit=commit), counted) is not None:
        return
    reject_locked(realm, subject, factor=factor, caller=caller)


def is_known_network(realm: Realm, user_id: UUID) -> bool:
    """Return whether the user has recently signed in from the caller's network."""
    network = caller_network()
    sessions = realm.sessions._default_manager.filter(user_id=user_id).order_by("-created_at")
    addresses = sessions.values_list("address", flat=True)[:RECENT_SESSIONS]
    return network is not None and any(network_of(address) == network for address in addresses if address)


def budget_of_ticket(realm: Realm, user_id: UUID) -> str:
    """Return the budget of attempts with the ticket of the user's login, by the caller's network."""
    return LOGIN_KNOWN_NETWORK if is_known_network(realm, user_id) else LOGIN


def caller_network() -> str | None:
    """Return the network of the caller's address, or None for a caller without an address."""
    address = current_origin().address
    return network_of(address) if address else None


def reject_locked(realm: Realm, subject: str, *, factor: str, caller: str) -> NoReturn:
    """Raise AttemptsLocked (429), with the seconds that are left, for an attempt that was not counted."""
    counters = realm.attempts._default_manager.filter(subject=subject, factor=factor, caller=caller)
    until = counters.values_list("locked_until", flat=True).first()
    wait = (until - now()).total_seconds() if until else 1.0
    raise AttemptsLocked(retry_after=max(0, int(wait)) + 1)


@contextmanager
def counted(realm: Realm, user_id_or_name: object, *, factor: str, caller: str = UNKNOWN_NETWORK) -> Iterator[None]:
    """Call `count`, then `given_back_when_busy`. Raises AttemptsLocked (429) while locked."""
    count(realm, user_id_or_name, factor=factor, caller=caller)
    with given_back_when_busy(realm, user_id_or_name, factor=factor, caller=caller):
        yield


@contextmanager
def given_back_when_busy(
    realm: Realm, user_id_or_name: object, *, factor: str, caller: str = UNKNOWN_NETWORK
) -> Iterator[None]:
    """Take the counted attempt back on HashersBusy: the secret was not compared.

    The counter is decremented, not cleared: earlier failures still count. A lock that the fifth attempt has set goes with
    it, any other lock stays.
    """
    try:
        yield
    except HashersBusy:
        give_back(realm, user_id_or_name, factor=factor, caller=caller)
        raise


def give_back(realm: Realm, user_id_or_name: object, *, factor: str, caller: str = UNKNOWN_NETWORK) -> None:
    """Take one counted attempt back, and a lock that it has set."""
    counters = realm.attempts._default_manager.filter(
        subject=subject_of(realm, user_id_or_name), factor=factor, caller=caller, failures__gt=0
    )
    locked_by_this = When(Exact(Mod("failures", FREE_TRIES), 0), then=None)
    counters.update(failures=F("failures") - 1, locked_until=Case(locked_by_this, default=F("locked_until")))


def clear(realm: Realm, user_id_or_name: object, *, factor: str, caller: str = UNKNOWN_NETWORK) -> None:
    """Set the counter back to 0 after a success.

    The row stays: a user who signs in daily costs no new entries in indexes. Those without an attempt are purged.
    """
    realm.attempts._default_manager.filter(
        subject=subject_of(realm, user_id_or_name), factor=factor, caller=caller
    ).update(failures=0, locked_until=None)


def forget(realm: Realm, user_id_or_name: object) -> int:
    """Delete every counter of a user who is erased or unlocked; return how many had failed attempts."""
    counters = realm.attempts._default_manager.filter(subject=subject_of(realm, user_id_or_name))
    failed = counters.filter(failures__gt=0).delete()[0]
    counters.delete()
    return failed


def failed_attempts(realm: Realm, user_id_or_name: object) -> list[Attempts]:
    """Return the counters of a user that count: locked, or with a failed attempt in the last day; newest first."""
    recent = Q(updated_at__gt=now() - FORGOTTEN_AFTER, failures__gt=0)
    counters = realm.attempts._default_manager.filter(subject=subject_of(realm, user_id_or_name))
    return list(counters.filter(recent | Q(locked_until__gt=now())).order_by("-updated_at"))


def is_locked(counter: Attempts) -> bool:
    """Return whether attempts are rejected now without being counted."""
    return counter.locked_until is not None and counter.locked_until > now()


# Limits of an address (settings.LIMITS) that count failures only. A use of one is counted before the comparison and taken
# back afterwards unless it failed: of many guesses at once, no more than the limit are compared.
WRONG_SECRET, UNKNOWN_USER = "wrong_secret", "unknown_user"
_FAILURES: Final = (WRONG_SECRET, UNKNOWN_USER)


@dataclass(slots=True)
class _Guess:
    """The counted uses of the current guess by limit, and the limits whose use was a failure.

    `exempt`: the request has a strong secret beside what could be guessed, so a failure does not count for its address.
    """

    exempt: bool = False
    usages: dict[str, ratelimit.Usage] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


_current_guess: ContextVar[_Guess | None] = ContextVar("current_guess", default=None)


def limit_address(name: str) -> None:
    """Count one request of the caller's address against settings.LIMITS[name]. Raises TooManyFromAddress (429) over it."""
    _reject(ratelimit.count(**asdict(_limit(name))))


@contextmanager
def guess(*names: str, exempt: bool = False) -> Iterator[None]:
    """Limit guesses of the caller's address at what a person can type: a password, a code, the address of a user.

    Every use of settings.LIMITS[name] is counted at once, with one round trip to Valkey, before anything is compared. That
    of WRONG_SECRET and UNKNOWN_USER is taken back at the end unless `count_wrong_secret` or `count_unknown_user` was called
    in between. Raises TooManyFromAddress (429) over a limit.

    The weakest secret of a request decides: with `exempt` it has a strong one beside the guess, such as the ticket of a
    login or a client's secret. The guess then counts against its user alone, and for the address only a strong secret
    that is wrong (NotSignedInByTicket): many users and applications may share it.
    """
    outer = _current_guess.get()
    current = _Guess(exempt=exempt or (outer is not None and outer.exempt))
    if not current.exempt:
        current.usages = dict(zip(names, ratelimit.count_all(*map(_limit, names)), strict=True))
        if any(usage.limited for usage in current.usages.values()):
            _take_back(current)
            _reject(*current.usages.values())
    token = _current_guess.set(current)
    try:
        yield
    except NotSignedInByTicket:
        if exempt:
            limit_address(WRONG_SECRET)
        raise
    finally:
        _current_guess.reset(token)
        _take_back(current)


def count_wrong_secret() -> None:
    """Count a secret of the caller's address that is wrong.

    Of a strong one, with no guess open, call it after the comparison: a right one always passes and is not counted.
    Raises TooManyFromAddress (429) over the limit.
    """
    _count_failure(WRONG_SECRET)


def count_unknown_user() -> None:
    """Count a user who does not exist, named by the caller's address. Raises TooManyFromAddress (429) over the limit."""
    current = _current_guess.get()
    if current is not None and current.exempt:
        # With a ticket that is of no user: the limit of wrong ones is that of those who exist too.
        limit_address(WRONG_SECRET)
        limit_address(UNKNOWN_USER)
        return
    _count_failure(UNKNOWN_USER)


def _count_failure(name: str) -> None:
    current = _current_guess.get()
    if current is None or not (current.exempt or name in current.usages):
        limit_address(name)
    elif not current.exempt:
        current.failed.add(name)


def _take_back(current: _Guess) -> None:
    """Take back the counted uses that were no failures."""
    counted_names = {*current.failed, *(current.usages.keys() - set(_FAILURES))}
    ratelimit.take_back(*(usage for name, usage in current.usages.items() if name not in counted_names))


def limit_client(name: str, *, client_id: UUID, confidential: bool) -> None:
    """Count one request of a client that has authenticated against settings.LIMITS[name]. Raises TooManyFromAddress (429).

    One with a secret or key counts for itself, wherever it runs. The id of a public client is known to all, so others
    could use up its limit: it counts for the caller's address.
    """
    limit = _limit(name)
    _reject(ratelimit.count(**asdict(replace(limit, key=f"client {client_id}") if confidential else limit)))


def _limit(name: str) -> ratelimit.Limit:
    """Return settings.LIMITS[name] for the network of the caller.

    An address that a client has named counts for this client alone: it could name those of other people.
    """
    by = current_origin().address_named_by
    network = caller_network() or "local"
    return ratelimit.Limit(name, f"{by} {network}" if by else network, *settings.LIMITS[name])


def _reject(*usages: ratelimit.Usage) -> None:
    for usage in usages:
        if usage.limited:
            raise TooManyFromAddress(retry_after=usage.retry_after)
