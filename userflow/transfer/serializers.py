from rest_framework import serializers

from identity_platform.api.fields import Boolean, Choice, Identifier, Integer, Items, StrictField
from identity_platform.api.json_field import JsonObject
from identity_platform.transfer.rows import FORMATS, JSONL
from identity_platform.transfer.runs import FAIL, ON_CONFLICT
from userflow.transfer.actions import MOST_OVER_REST

MOST_EXPORTED = 500


class Content(StrictField, serializers.CharField):
    """The unchanged text of a file, whose rows are validated one by one."""

    default_error_messages = {
        "invalid": "Send the file's content as a string.",
        "blank": "This field may not be empty.",
    }

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return data

    def openapi(self) -> dict[str, object]:
        return {"type": "string", "minLength": 1}


class EndUserImportIn(serializers.Serializer[object]):
    any_of = (("rows",), ("content",))
    tenant_id = Identifier()
    rows = Items(
        JsonObject(max_bytes=65_536, max_depth=12),
        most=MOST_OVER_REST,
        required=False,
        help_text="One object per user, with the fields of a JSON lines file. Send either this or `content`.",
    )
    content = Content(required=False, trim_whitespace=False, help_text="The content of a file in `format`.")
    format = Choice(FORMATS, required=False, default=JSONL)
    dry_run = Boolean(required=False, default=False, help_text="Check everything without changes.")
    on_conflict = Choice(
        ON_CONFLICT, required=False, default=FAIL, help_text="What to do with rows whose address is taken."
    )
    create_missing = Boolean(
        required=False, default=False, help_text="Create the missing roles and groups that rows name."
    )

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        """One source of rows, not two."""
        if ("rows" in attrs) == ("content" in attrs):
            raise serializers.ValidationError({"rows": ["Send either rows or content."]})
        return attrs


class ImportFaultOut(serializers.Serializer[object]):
    line = serializers.IntegerField(help_text="Line of the content, or number of the row, from 1.")
    field = serializers.CharField(allow_blank=True, help_text="The field; empty for the row as a whole.")
    reason = serializers.CharField()


class EndUserImportOut(serializers.Serializer[object]):
    dry_run = serializers.BooleanField()
    rows = serializers.IntegerField()
    created = serializers.IntegerField()
    updated = serializers.IntegerField()
    skipped = serializers.IntegerField()
    failed = serializers.IntegerField()
    report = ImportFaultOut(many=True)


class EndUserExportIn(serializers.Serializer[object]):
    tenant_id = Identifier()
    cursor = Identifier(required=False, help_text="`next_cursor` of the previous page.")
    limit = Integer(required=False, default=100, min_value=1, max_value=MOST_EXPORTED, help_text="Users per page.")
    with_hashes = Boolean(
        required=False,
        default=False,
        help_text="Include password hashes, for admins and operators with `endusers:export_hashes`.",
    )


class ExportedEndUserOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    email = serializers.CharField()
    name = serializers.CharField(allow_null=True)
    active = serializers.BooleanField()
    provider = serializers.CharField()
    client_id = serializers.UUIDField(allow_null=True, help_text="Client of the user; null: the default client.")
    password_hash = serializers.CharField(allow_null=True)
    external_id = serializers.CharField(allow_null=True)
    metadata = serializers.DictField()
    app_metadata = serializers.DictField()
    groups = serializers.ListField(child=serializers.CharField())
    roles = serializers.ListField(child=serializers.CharField())
    email_verified = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    last_login = serializers.DateTimeField(allow_null=True)


class EndUserExportOut(serializers.Serializer[object]):
    users = ExportedEndUserOut(many=True, help_text="Users of the page.")
    next_cursor = serializers.UUIDField(allow_null=True, help_text="Send this as `cursor`; null on the last page.")
