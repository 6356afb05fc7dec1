"""The profile of an end user, a hot read: its own statement, or a part of the one that reads the caller's session."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import orjson

from identity_platform.postgresql.statements import fetch_row
from userflow.sessions.queries import end_user_state_and

_NAMES = ("id", "email", "name", "active", "provider", "client_id", "created_at", "updated_at", "last_login")
_COLUMNS = (
    f"{', '.join('u.' + name for name in _NAMES)}, nullif(u.language, ''), u.external_id, u.metadata::text,"
    " u.app_metadata::text"
)
_PROFILE = f"SELECT {_COLUMNS} FROM userflow_enduser u WHERE u.id = %s"
STATE_AND_PROFILE: Final = end_user_state_and(_COLUMNS)


def end_user_profile(user_id: UUID) -> dict[str, object] | None:
    """Return the record of an end user of the entered tenant, or None."""
    row = fetch_row("tenant", _PROFILE, [user_id])
    return None if row is None else profile_of(row)


def profile_of(columns: Sequence[Any]) -> dict[str, object]:
    """Return the record of the further columns of STATE_AND_PROFILE."""
    *record, language, external_id, metadata, app_metadata = columns
    return {
        **dict(zip(_NAMES, record, strict=True)),
        "language": language,
        "external_id": external_id,
        "metadata": orjson.Fragment(metadata),
        "app_metadata": orjson.Fragment(app_metadata),
    }
