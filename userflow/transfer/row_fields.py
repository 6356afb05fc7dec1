"""The fields of a row: of end users, and of roles and groups, which an export writes before the users."""

from rest_framework import serializers

from identity_platform.api.fields import Boolean, Choice, EmailAddress, Identifier, Items, StrictField, Text, Timestamp
from identity_platform.api.json_field import JsonObject
from identity_platform.transfer import schema
from userflow.accounts.models import LONGEST_EXTERNAL_ID
from userflow.accounts.serializers import Provider
from userflow.branding.texts import LANGUAGES
from userflow.credentials import foreign_hashes
from userflow.roles.serializers import MOST_PERMISSIONS, Permission

USER, ROLE, GROUP = "end_user", "role", "group"
LONGEST_HASH = 512
MOST_NAMES = 200
LONGEST_ROLE, LONGEST_GROUP = 63, 255


class PasswordHash(Text):
    """A hash that `foreign_hashes` verifies; a more costly one would slow every sign-in of the user down."""

    default_error_messages = {
        "unknown": "Not a bcrypt, scrypt, PBKDF2 or argon2 hash in a usual spelling, or one that costs too much to verify."
    }

    def to_internal_value(self, data: object) -> str:
        text = super().to_internal_value(data)
        # The length is checked before the patterns, so that a long text cannot take time.
        if len(text) > LONGEST_HASH or foreign_hashes.identify(text) is None:
            self.fail("unknown")
        return text


class Names(StrictField, serializers.ListField):
    default_error_messages = {
        "not_a_list": "Send a list of names.",
        "max_length": "Send at most {max_length} names.",
    }

    def __init__(self, *, longest: int) -> None:
        super().__init__(child=Text(max_length=longest, trim=True), max_length=MOST_NAMES)

    def openapi(self) -> dict[str, object]:
        return {"type": "array", "maxItems": MOST_NAMES, "items": {"type": "string", "minLength": 1}}


END_USERS = schema.RowSchema(
    {
        "kind": Choice((USER,)),
        "id": Identifier(),
        "email": EmailAddress(),
        "name": Text(max_length=255, allow_blank=True),
        "active": Boolean(),
        "provider": Provider(max_length=63),
        "client_id": Identifier(),
        "password_hash": PasswordHash(),
        "language": Choice(LANGUAGES),
        "external_id": Text(max_length=LONGEST_EXTERNAL_ID),
        "metadata": JsonObject(),
        "app_metadata": JsonObject(),
        "groups": Names(longest=LONGEST_GROUP),
        "roles": Names(longest=LONGEST_ROLE),
        "email_verified": Boolean(),
        "created_at": Timestamp(),
        "last_login": Timestamp(),
    },
    needed=("email",),
    texts={
        "active": schema.boolean,
        "email_verified": schema.boolean,
        "metadata": schema.json_cell,
        "app_metadata": schema.json_cell,
        "groups": schema.name_list,
        "roles": schema.name_list,
    },
)
ROLES = schema.RowSchema(
    {
        "kind": Choice((ROLE,)),
        "name": Text(max_length=LONGEST_ROLE, trim=True),
        "description": Text(max_length=1000, allow_blank=True, single_line=False),
        "permissions": Items(Permission(), most=MOST_PERMISSIONS),
    },
    needed=("name",),
    texts={},
)
GROUPS = schema.RowSchema(
    {
        "kind": Choice((GROUP,)),
        "name": Text(max_length=LONGEST_GROUP, trim=True),
        "description": Text(max_length=1000, allow_blank=True, single_line=False),
        "roles": Names(longest=LONGEST_ROLE),
    },
    needed=("name",),
    texts={},
)
KINDS = {USER: END_USERS, ROLE: ROLES, GROUP: GROUPS}
# Roles and groups are only in JSON lines: a CSV of users has no columns for them.
KNOWN_IN_CSV = END_USERS.known - {"kind"}
KNOWN_IN_JSON = END_USERS.known | ROLES.known | GROUPS.known
