import re
from uuid import UUID

from identity_platform.api.errors import ApiError, ValidationFailed

FORM = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def id_or(value: str, error: type[ApiError]) -> UUID:
    """Return the id of a path; a malformed one raises the same error as an unknown one."""
    if FORM.fullmatch(value) is None:
        raise error
    return UUID(value)


def tenant_id_in_path(value: str) -> UUID:
    """Return the tenant id of a path. Raises ValidationFailed if it is malformed."""
    if FORM.fullmatch(value) is None:
        raise ValidationFailed(details={"tenant_id": ["Send the id in its 36-character form."]})
    return UUID(value)
