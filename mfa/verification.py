"""The two statements of a verification by the hot factors: the try, and what a right one earns.

The first finds the user, the factor and the login that waits, counts the try and is committed; only then is anything
compared. The second spends the factor and writes all that follows from it, or nothing (docs/performance.md, "Target 15").
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

import orjson
from django.db import connections

from identity_platform.api.email_addresses import email_key
from identity_platform.crypto import hash_token
from identity_platform.postgresql.parts import Part, together
from mfa.enrollment import Caller, id_in
from tenants import lookup
from tenants.states import Purpose
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_models import UserTicket
from userflow.credentials import attempts, tickets
from userflow.errors import NotSignedInByTicket, WrongCredentials
from userflow.sessions.issue import TokenPair, TokenSubject
from userflow.signin import composed
from userflow.signin.composed import STANDING

# What verifying and signing in ask of a user; any other column would be read when it is asked for.
_OF_USER = frozenset({"id", "email", "active", "password", "client_id", "tenant_id", "email_verified_at"})


@dataclass(frozen=True, slots=True)
class Factor:
    """How a kind of factor is found: its table, its columns that are read, and the condition on its alias `f`.

    `also` are parts behind `counted`, such as a challenge that the try uses up, `shown` what the statement gives of them.
    """

    kind: str
    table: str
    columns: tuple[str, ...]
    condition: str
    values: Mapping[str, Any]
    also: tuple[Part, ...] = ()
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Try:
    """A try that is counted: of whom (of nobody, if there is no such user), with which factor, for which login."""

    user: Any | None
    # The factor's columns, and what was `shown`; all None where there is none.
    found: tuple[Any, ...]
    login: UserTicket | None
    # Whose budget it was counted against.
    caller: str


_PERSON = """
SELECT {of_user}, {of_factor}, CASE WHEN u.id = %(person_known)s::uuid THEN 'known' ELSE {otherwise} END AS caller
FROM {users} u LEFT JOIN {table} f ON f.user_id = u.id AND {condition} WHERE {who} AND u.active
"""


# Several admin users may state an address that none of them has verified. The login's ticket says which one is meant, or the
# caller's token; without either the address names who has verified it, else the only one.
_OWN = """(SELECT o.id FROM userflow_adminuser o WHERE o.email_key = %(person_key)s AND (o.id = %(person_known)s::uuid
OR o.id = (SELECT t.user_id FROM userflow_adminticket t WHERE t.digest = %(person_ticket)s::bytea))
ORDER BY o.id = %(person_known)s::uuid LIMIT 1)"""
_ADMIN_AT = f"""u.email_key = %(person_key)s AND (u.id = {_OWN} OR {_OWN} IS NULL AND (u.email_verified_at IS NOT NULL
OR NOT EXISTS (SELECT FROM userflow_adminuser o WHERE o.email_key = u.email_key AND o.id <> u.id)))"""


def _who(realm: Realm, *, email: str | None) -> str:
    if email is None:
        return "u.id = %(person_known)s"
    return _ADMIN_AT if realm is ADMINS else "u.email_key = %(person_key)s"


def count_try(
    *, realm: Realm, email: str | None, caller: Caller, mfa_token: str | None, factor: Factor, nobody: bool = False
) -> Try:
    """Find the active user with this address and count a try at the factor, before it is looked at: one statement.

    Without an address it is the user of the caller's access token. `nobody`: also a name that nobody has is counted,
    unless there is an `mfa_token`. Raises NotSignedInByTicket (401) when `mfa_token` is not good or is somebody
    else's, AttemptsLocked (429), TenantSuspended; a locked try spoils no ticket.
    """
    names = names_of(realm)
    person = _PERSON.format(
        of_user=", ".join(f"u.{name}" for name in names),
        of_factor=", ".join(f"f.{name} AS factor_{name}" for name in factor.columns),
        users=realm.users._meta.db_table,
        table=factor.table,
        condition=factor.condition,
        who=_who(realm, email=email),
        otherwise=f"'{attempts.UNKNOWN_NETWORK}'"
        if mfa_token is None
        else composed.login_budget(realm, user="u.id", network="%(person_network)s"),
    )
    key = email_key(email) if email is not None else None
    values = {
        "person_known": id_in(realm, caller.principal),
        "person_key": key,
        "person_ticket": hash_token(mfa_token) if mfa_token is not None else None,
        **factor.values,
    }
    if mfa_token is not None:
        values["person_network"] = attempts.caller_network()
    parts = [Part(composed.PERSON, person, values)]
    if mfa_token is None:
        stranger = attempts.subject_of(realm, email.lower()) if nobody and email is not None else None
        parts.append(composed.trying(nobody=stranger))
    else:
        parts.append(composed.waiting(realm, mfa_token, tickets.SECOND_STEP, source=composed.PERSON))
        parts.append(composed.trying_ticket(realm, factor=factor.kind))
    parts.append(composed.counting(realm, factor=factor.kind, source="tried"))
    parts.extend(factor.also)
    with connections[realm.alias].cursor() as cursor:
        cursor.execute(*together(parts, _answer(names, factor, waits=mfa_token is not None)))
        user_id, budget, counted_for, waits_for, client_id, amr, *row = cursor.fetchone()
    found = tuple(row[len(names) :])
    if user_id is None:
        if counted_for is None and nobody and mfa_token is None and email is not None:
            _reject_uncounted(realm, email.lower(), attempts.UNKNOWN_NETWORK, None, factor.kind)
        return Try(None, found, None, attempts.UNKNOWN_NETWORK)
    user: Any = realm.users.from_db(realm.alias, list(names), row[: len(names)])
    if realm is not END_USERS and user.tenant_id is not None:
        lookup.find(user.tenant_id).check(Purpose.READ)
    login = None
    if mfa_token is not None:
        if waits_for is None:
            raise NotSignedInByTicket
        login = realm.tickets(
            digest=hash_token(mfa_token),
            purpose=tickets.SECOND_STEP,
            user=user,
            client_id=client_id,
            amr=orjson.loads(amr),
        )
    if counted_for is None:
        _reject_uncounted(realm, user.pk, budget, login, factor.kind)
    return Try(user, found, login, counted_for)


@cache
def names_of(realm: Realm) -> tuple[str, ...]:
    """The columns of a user that verifying and signing in ask for, in the order in which Django takes a model's values."""
    return tuple(one.attname for one in realm.users._meta.concrete_fields if one.attname in _OF_USER)


def _answer(names: Iterable[str], factor: Factor, *, waits: bool) -> str:
    of_login = "waiting.user_id, waiting.client_id, waiting.amr" if waits else "NULL, NULL, NULL"
    shown = [f"person.{name}" for name in names] + [f"person.factor_{name}" for name in factor.columns]
    return (
        f"SELECT person.id, person.caller, counted.caller, {of_login}, {', '.join(shown)}{factor.shown} FROM (SELECT) AS one"
        " LEFT JOIN person ON true LEFT JOIN counted ON true"
        + (" LEFT JOIN waiting ON true" if waits else "")
        + "".join(f" LEFT JOIN {part.name} ON true" for part in factor.also)
    )


def _reject_uncounted(realm: Realm, who: object, budget: str, login: UserTicket | None, kind: str) -> NoReturn:
    if login is not None and not _still_waits(realm, login):
        raise NotSignedInByTicket
    attempts.reject_locked(realm, attempts.subject_of(realm, who), factor=kind, caller=budget)


def _still_waits(realm: Realm, login: UserTicket) -> bool:
    return realm.tickets._default_manager.filter(digest=login.digest, used_at=None).exists()


@dataclass(frozen=True, slots=True)
class Use:
    """A factor that was right: which row of which table (alias `f`) may be used, and what a use changes in it."""

    kind: str
    table: str
    condition: str
    changes: str
    values: Mapping[str, Any]
    # For the audit row of a verification that opens no session.
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Earned:
    """The session that a use opens. `login` is the first step that it completes, if there was one."""

    subject: TokenSubject
    tenant: lookup.TenantContext | None
    amr: tuple[str, ...]
    user_agent: str
    login: UserTicket | None = None


class Unusable(Exception):
    """Another use of the same factor was first."""


def spend(*, realm: Realm, tried: Try, use: Use, earned: Earned | None) -> TokenPair | None:
    """Use the factor, forgive the tries, audit it, and open the session that it has earned, if one: one statement.

    All of it is written or nothing. Raises Unusable. Raises NotSignedInByTicket (401) when the login was completed
    by somebody else, EmailNotVerified.
    """
    user = tried.user
    assert user is not None  # a factor that was right is somebody's
    used = f"UPDATE {use.table} f SET {use.changes}"
    if earned is None:
        parts = [
            Part("used", f"{used} WHERE {use.condition} RETURNING f.user_id AS id", use.values),
            composed.clearing(realm, user.pk, factor=use.kind, caller=tried.caller, source="used"),
            realm.recording(
                "factor.verified",
                source="used",
                target=("end_user" if realm is END_USERS else "admin_user", user.pk),
                tenant_id=getattr(user, "tenant_id", None),
                details={"kind": use.kind, **use.details},
            ),
        ]
        with connections[realm.alias].cursor() as cursor:
            cursor.execute(*together(parts, "SELECT id FROM used"))
            if cursor.fetchone() is None:
                raise Unusable
        return None
    also = [
        Part("used", f"{used} FROM {STANDING} WHERE f.user_id = {STANDING}.id AND {use.condition}", use.values),
        composed.clearing(realm, user.pk, factor=use.kind, caller=tried.caller, source=STANDING),
    ]
    if earned.login is not None:
        also.append(composed.spending(realm, earned.login, source=STANDING))
    try:
        return composed.complete_sign_in(
            realm,
            user,
            earned.subject,
            amr=earned.amr,
            tenant=earned.tenant,
            user_agent=earned.user_agent,
            given=_ready(realm, user, use, earned.login),
            also=also,
        )
    except WrongCredentials as gone:
        if earned.login is not None and not _still_waits(realm, earned.login):
            raise NotSignedInByTicket from gone
        raise Unusable from gone


# Everything that a sign-in is about to spend, locked in the order in which changes of factors lock, and looked at again
# under the locks: all of it is good, or there is no row and nothing is written.
_READY = """
SELECT u.id FROM {users} u JOIN {table} f ON f.user_id = u.id {ticket}
WHERE u.id = %(ready_user)s AND u.active AND {condition} {good} FOR NO KEY UPDATE
"""


def _ready(realm: Realm, user: Any, use: Use, login: UserTicket | None) -> Part:
    values = {"ready_user": user.pk, **use.values}
    ticket = good = ""
    if login is not None:
        ticket = f"JOIN {realm.tickets._meta.db_table} t ON t.user_id = u.id"
        good = "AND t.digest = %(ready_ticket)s AND t.used_at IS NULL AND t.expires_at > now()"
        values["ready_ticket"] = login.digest
    users = realm.users._meta.db_table
    sql = _READY.format(users=users, table=use.table, ticket=ticket, condition=use.condition, good=good)
    return Part("ready", sql, values)
