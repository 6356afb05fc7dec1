"""Ids in paths."""

import re
from uuid import UUID

from identity_platform.api.errors import ApiError, ValidationFailed

FORM = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def id_or(value: str, error: type[ApiError]) -> UUID:
    """The id in a path slot; a malformed one is rejected like one that nobody has."""
    if FORM.fullmatch(value) is None:
        raise error
    return UUID(value)


def tenant_id_in_path(value: str) -> UUID:
    """The tenant named in a path; ValidationFailed when malformed."""
    if FORM.fullmatch(value) is None:
        raise ValidationFailed(details={"tenant_id": ["Send the id in its 36-character form."]})
    return UUID(value)
