"""The profile of an end user, a hot read, in one statement."""

from uuid import UUID

import orjson

from identity_platform.postgresql.statements import fetch_row

_COLUMNS = ("id", "email", "name", "active", "provider", "client_id", "created_at", "updated_at", "last_login")
_PROFILE = (
    f"SELECT {', '.join('u.' + column for column in _COLUMNS)}, nullif(u.language, ''), u.external_id, u.metadata::text,"
    " u.app_metadata::text FROM userflow_enduser u WHERE u.id = %s"
)


def end_user_profile(user_id: UUID) -> dict[str, object] | None:
    """Return the record of an end user of the entered tenant, or None."""
    row = fetch_row("tenant", _PROFILE, [user_id])
    if row is None:
        return None
    *record, language, external_id, metadata, app_metadata = row
    return {
        **dict(zip(_COLUMNS, record, strict=True)),
        "language": language,
        "external_id": external_id,
        "metadata": orjson.Fragment(metadata),
        "app_metadata": orjson.Fragment(app_metadata),
    }
