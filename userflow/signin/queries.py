"""The hot read of a sign-in."""

import orjson
from django.db import connections

from userflow.endusers.models import EndUser

# What a sign-in asks of its user; any other column would be read when it is asked for.
_COLUMNS = ("id", "email", "name", "active", "password", "mfa_methods", "email_verified_at")
_FOUND = f"SELECT {', '.join(_COLUMNS)} FROM userflow_enduser WHERE email_key = %s"


def end_user_at(key: str) -> EndUser | None:
    """The end user with this address (`email_key`), active or not; None if there is none."""
    with connections["tenant"].cursor() as cursor:
        cursor.execute(_FOUND, [key])
        row = cursor.fetchone()
    if row is None:
        return None
    values = dict(zip(_COLUMNS, row, strict=True))
    values["mfa_methods"] = orjson.loads(values["mfa_methods"])
    return EndUser.from_db("tenant", list(values), list(values.values()))
