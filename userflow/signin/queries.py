"""The hot statement of a sign-in: who it is, and that it was tried."""

import orjson
from django.db import connections

from identity_platform.postgresql.parts import Part, together
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.credentials import attempts

# What a sign-in asks of its user; any other column would be read when it is asked for.
_COLUMNS = ("id", "email", "name", "active", "password", "mfa_methods", "email_verified_at")
_PERSON = (
    f"SELECT {', '.join(f'u.{name}' for name in _COLUMNS)},"
    f" CASE WHEN {attempts.is_familiar(END_USERS, user='u.id', network='%(person_network)s')}"
    f" THEN '{attempts.FAMILIAR}' ELSE '{attempts.STRANGER}' END AS caller"
    " FROM userflow_enduser u WHERE u.email_key = %(person_key)s"
)
_ANSWER = (
    f"SELECT counted.caller, person.caller, {', '.join(f'person.{name}' for name in _COLUMNS)}"
    " FROM (SELECT) AS one LEFT JOIN person ON true LEFT JOIN counted ON true"
)


def count_password_try(key: str) -> tuple[EndUser | None, str]:
    """The end user with this address (`email_key`), active or not, with a try at the password counted: one statement.

    None if there is none; then the try is counted of the address. Also gives whose budget it was counted against. Rejects
    with AttemptsLocked (429).
    """
    nobody = attempts.subject_of(END_USERS, key)
    parts = [
        Part(attempts.PERSON, _PERSON, {"person_key": key, "person_network": attempts.caller_network()}),
        attempts.trying(nobody=nobody),
        attempts.counting(END_USERS, factor=attempts.PASSWORD, source="tried"),
    ]
    with connections["tenant"].cursor() as cursor:
        cursor.execute(*together(parts, _ANSWER))
        counted_for, caller, *row = cursor.fetchone()
    values = dict(zip(_COLUMNS, row, strict=True))
    if counted_for is None:
        subject = str(values["id"] or nobody)
        attempts.reject_locked(END_USERS, subject, factor=attempts.PASSWORD, caller=caller or attempts.STRANGER)
    if values["id"] is None:
        return None, attempts.STRANGER
    values["mfa_methods"] = orjson.loads(values["mfa_methods"])
    return EndUser.from_db("tenant", list(values), list(values.values())), caller
