"""The fields of a row: of services, and of credentials, whose rows follow their service's row."""

from identity_platform.api.fields import Choice, Identifier, Text, Timestamp
from identity_platform.api.url_field import HttpUrl
from identity_platform.transfer import schema
from registry.models import ACTIVE, CREDENTIAL_TYPES, LONGEST_TYPE, REVOKED, STATUSES
from registry.serializers import Secret, free_metadata

SERVICE, CREDENTIAL = "service", "credential"

SERVICES = schema.RowSchema(
    {
        "kind": Choice((SERVICE,)),
        "id": Identifier(),
        "name": Text(max_length=255, trim=True),
        "description": Text(max_length=10_000, allow_blank=True, single_line=False),
        "type": Text(max_length=LONGEST_TYPE, trim=True),
        "base_url": HttpUrl(),
        "api_version": Text(max_length=255, allow_blank=True),
        "status": Choice(STATUSES),
        "metadata": free_metadata(),
        "created_at": Timestamp(),
    },
    needed=("name", "type", "base_url"),
    texts={"metadata": schema.json_cell},
)
CREDENTIALS = schema.RowSchema(
    {
        "kind": Choice((CREDENTIAL,)),
        "service": Text(max_length=255, trim=True),
        "name": Text(max_length=255, trim=True),
        "type": Choice(CREDENTIAL_TYPES),
        "status": Choice((ACTIVE, REVOKED)),
        "secret": Secret(),
        "metadata": free_metadata(),
        "expires_at": Timestamp(),
        "created_at": Timestamp(),
    },
    needed=("service", "name"),
    texts={},
)
KINDS = {SERVICE: SERVICES, CREDENTIAL: CREDENTIALS}
# Credentials are only in JSON lines: a CSV of services has no columns for them.
KNOWN_IN_CSV = SERVICES.known - {"kind"}
KNOWN_IN_JSON = SERVICES.known | CREDENTIALS.known
