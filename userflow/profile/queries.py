"""The profile of an end user in one statement (performance.md: the hot read)."""

from typing import Any
from uuid import UUID

import orjson
from django.db import connections

_GROUPS = (
    "ARRAY(SELECT g.name FROM userflow_groupmembership m JOIN userflow_group g ON g.id = m.group_id"
    " WHERE m.user_id = {user} ORDER BY g.name)"
)
_COLUMNS = ("id", "email", "name", "active", "provider", "client_id", "created_at", "updated_at", "last_login")
_PROFILE = (
    f"SELECT {', '.join('u.' + column for column in _COLUMNS)}, u.metadata::text, {_GROUPS.format(user='u.id')}"
    " FROM userflow_enduser u WHERE u.id = %s"
)


def end_user_profile(user_id: UUID) -> dict[str, Any] | None:
    """The record of an end user of the tenant that is entered, with the names of its groups; None if there is none."""
    with connections["tenant"].cursor() as cursor:
        cursor.execute(_PROFILE, [user_id])
        row = cursor.fetchone()
    if row is None:
        return None
    *record, metadata, groups = row
    return {**dict(zip(_COLUMNS, record, strict=True)), "metadata": orjson.Fragment(metadata), "groups": groups}


def group_names(user_id: UUID) -> list[str]:
    """The names of the groups of an end user of the tenant that is entered."""
    with connections["tenant"].cursor() as cursor:
        cursor.execute(f"SELECT {_GROUPS.format(user='%s')}", [user_id])
        return list(cursor.fetchone()[0])
