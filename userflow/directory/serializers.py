import re
from typing import Unpack

from rest_framework import serializers

from identity_platform.api.fields import (
    Boolean,
    Choice,
    FieldOptions,
    Identifier,
    Integer,
    NullIsAbsent,
    StrictField,
    Text,
    TextOptions,
    fields_of,
)
from identity_platform.api.pagination import PaginationOut
from tenants.settings.setting_fields import Certificates
from userflow.directory.actions import DirectoryWithLastRun
from userflow.directory.ldap import LDAPS, PLAIN, STARTTLS
from userflow.directory.models import KINDS, STATES, TRIGGERS, DirectoryRun
from userflow.directory.objects import DEFAULT_MAPPING, METADATA_KEY, MOST_ATTRIBUTES, is_readable
from userflow.directory.synchronising import Ran, Tried
from userflow.named_tenant import TenantParameter

MOST_GROUPS = 100
LONGEST_PEM = 65_536
# RFC 1123 names, or an IP address, without user info and path: TLS verifies this name.
_HOST = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[0-9A-Fa-f:.]{2,45}"
)
_OBJECT_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]{0,252}")
_CLOUD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class Matching(Text):
    default_error_messages = {"form": "{says}"}

    def __init__(self, form: re.Pattern[str], says: str, **options: Unpack[TextOptions]) -> None:
        self.form, self.says = form, says
        super().__init__(**options)

    def to_internal_value(self, data: object) -> str:
        text = super().to_internal_value(data)
        if self.form.fullmatch(text) is None:
            self.fail("form", says=self.says)
        return text


class Filter(Text):
    """A search filter (RFC 4515). Only the outer form is checked: one expression in parentheses."""

    default_error_messages = {"form": "Send an LDAP filter in parentheses, such as (objectClass=user)."}

    def to_internal_value(self, data: object) -> str:
        text = super().to_internal_value(data)
        depth = 0
        for position, character in enumerate(text):
            depth += (character == "(") - (character == ")")
            if depth < 0 or (depth == 0 and position < len(text) - 1):
                self.fail("form")
        if depth or (text and text[0] != "("):
            self.fail("form")
        return text


class Attribute(Text):
    """The name of a directory attribute that may be read."""

    default_error_messages = {"form": "Send the name of an attribute; attributes with passwords are not allowed."}

    def __init__(self, **options: Unpack[FieldOptions]) -> None:
        super().__init__(max_length=127, **options)

    def to_internal_value(self, data: object) -> str:
        text = super().to_internal_value(data)
        if not is_readable(text):
            self.fail("form")
        return text


class Table(StrictField):
    """A flat JSON object with text values."""

    default_error_messages = {
        "invalid": "Send a JSON object with text values.",
        "most": "Send at most {most} keys.",
        "member": "{member}: {says}",
    }

    def __init__(self, *, key: Text, value: Text, most: int, help_text: str) -> None:
        self.key, self.value, self.most = key, value, most
        super().__init__(required=False, help_text=help_text)

    def to_internal_value(self, data: object) -> dict[str, str]:
        if not isinstance(data, dict):
            self.fail("invalid")
        if len(data) > self.most:
            self.fail("most", most=self.most)
        checked: dict[str, str] = {}
        for key, value in data.items():
            try:
                checked[str(self.key.run_validation(key))] = str(self.value.run_validation(value))
            except serializers.ValidationError as problem:
                says = problem.detail[0] if isinstance(problem.detail, list) else "Send a text."
                self.fail("member", member=key[:80], says=says)
        return checked

    def to_representation(self, value: object) -> object:
        return value

    def openapi(self) -> dict[str, object]:
        return {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": self.most}


class AttributeMappingIn(NullIsAbsent, serializers.Serializer[object]):
    """Directory attributes for a user's address, name and both metadata."""

    email = Attribute(required=False, help_text="The attribute with the address (default mail).")
    name = Attribute(required=False, help_text="The attribute with the name (default displayName).")
    metadata = Table(
        key=Matching(METADATA_KEY, "Send letters, digits, '.', '_' and '-'."),
        value=Attribute(),
        most=MOST_ATTRIBUTES,
        help_text="Maps keys of the user's metadata to directory attributes. Users can overwrite it: see `app_metadata`.",
    )
    app_metadata = Table(
        key=Matching(METADATA_KEY, "Send letters, digits, '.', '_' and '-'."),
        value=Attribute(),
        most=MOST_ATTRIBUTES,
        help_text="Maps keys of the user's app metadata, which users cannot write, to directory attributes.",
    )


class DirectoryChanges(TenantParameter):
    name = Text(max_length=255, trim=True, required=False, help_text="Unique in the tenant, in any case.")
    enabled = Boolean(required=False, help_text="Whether scheduled runs include it.")
    secret = Text(
        max_length=1024,
        required=False,
        help_text="Password of bind_dn, or client secret. Never returned; required with every change of the target.",
    )
    server = Matching(
        _HOST, "Send a host name or an address, without scheme and port.", max_length=253, required=False,
        help_text="Active Directory: host name or address of the LDAP server.",
    )  # fmt: skip
    port = Integer(min_value=1, max_value=65_535, required=False, help_text="Default 636, with starttls 389.")
    tls = Choice((LDAPS, STARTTLS, PLAIN), required=False, help_text="How the connection is encrypted. Default: ldaps.")
    ca_certificate = Certificates(
        max_length=LONGEST_PEM, allow_blank=True, required=False,
        help_text="PEM of the CAs to trust instead of all others.",
    )  # fmt: skip
    base_dn = Text(max_length=1000, required=False)
    bind_dn = Text(max_length=1000, required=False, help_text="The user for the bind: a DN, or name@domain.")
    user_filter = Filter(max_length=1000, allow_blank=True, required=False)
    directory_tenant_id = Matching(
        _OBJECT_ID, "Send the directory's id or one of its domains.", max_length=253, required=False,
        help_text="Entra ID: its own tenant id or a domain.",
    )  # fmt: skip
    application_id = Matching(_OBJECT_ID, "Send the application's id.", max_length=253, required=False)
    cloud = Matching(
        _CLOUD, "Send a cloud's name.", max_length=63, required=False, help_text="Microsoft cloud. Default: global."
    )
    client_id = Identifier(required=False, allow_null=True, help_text="Client of new users; null: the default client.")
    mapping = AttributeMappingIn(required=False)
    groups = Table(
        key=Text(max_length=1000),
        value=Text(max_length=255),
        most=MOST_GROUPS,
        help_text="Maps directory groups (DN or object id) to names of tenant groups.",
    )
    max_deactivation_percent = Integer(
        min_value=0,
        max_value=100,
        required=False,
        help_text="A run that would deactivate more than this share of active users stops.",
    )
    sync_every_minutes = Integer(min_value=5, max_value=43_200, required=False, allow_null=True)


class DirectoryIn(DirectoryChanges):
    kind = Choice(KINDS, help_text="active_directory (over LDAP) or entra_id (over Microsoft Graph).")
    name = Text(max_length=255, trim=True, help_text="Unique in the tenant, in any case.")
    secret = Text(
        max_length=1024, help_text="The password of bind_dn, or the application's client secret. Never returned."
    )


class DirectorySyncIn(TenantParameter):
    dry_run = Boolean(required=False, default=False, help_text="Report the changes without making them.")
    force = Boolean(required=False, default=False, help_text="Deactivate users however many they are.")
    full = Boolean(required=False, default=False, help_text="Read everything, even if a read of changes is possible.")


class DirectoryRunProblemOut(serializers.Serializer[object]):
    external_id = serializers.CharField(allow_blank=True, help_text="Id in the directory; empty if unknown.")
    code = serializers.CharField(help_text="Stable name of the problem, for programs.")
    message = serializers.CharField(help_text="What is wrong, for people to read.")


class DirectoryRunPreviewOut(serializers.Serializer[object]):
    external_id = serializers.CharField(help_text="Id in the directory.")
    action = serializers.CharField(help_text="create, update, activate, deactivate or skip.")
    email = serializers.CharField(
        required=False, allow_blank=True, help_text="E-mail address; only in the response of the run itself."
    )
    name = serializers.CharField(
        required=False, allow_blank=True, help_text="Name; only in the response of the run itself."
    )


class LastDirectoryRunOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    state = serializers.ChoiceField(STATES)
    dry_run = serializers.BooleanField()
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_blank=True, help_text="Why the run failed or stopped; empty if it did not.")


class DirectoryRunOut(LastDirectoryRunOut):
    directory_id = serializers.UUIDField()
    trigger = serializers.ChoiceField(TRIGGERS)
    full = serializers.BooleanField()
    users_found = serializers.IntegerField()
    users_created = serializers.IntegerField()
    users_updated = serializers.IntegerField()
    users_activated = serializers.IntegerField()
    users_deactivated = serializers.IntegerField()
    users_skipped = serializers.IntegerField()
    errors = DirectoryRunProblemOut(  # type: ignore[assignment]  # a response field; this serializer never validates
        many=True, help_text="The first hundred rejected objects."
    )
    preview_users = DirectoryRunPreviewOut(many=True, help_text="The first hundred objects with a change.")


class AttributeMappingOut(serializers.Serializer[object]):
    email = serializers.CharField(help_text="Attribute with the address.")
    name = serializers.CharField(help_text="Attribute with the name.")
    metadata = serializers.DictField(
        child=serializers.CharField(), help_text="Keys of the user's metadata with their attributes."
    )
    app_metadata = serializers.DictField(
        child=serializers.CharField(), help_text="Keys of the user's app metadata with their attributes."
    )


class ConfigOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    kind = serializers.ChoiceField(KINDS, help_text="active_directory (over LDAP) or entra_id (over Microsoft Graph).")
    name = serializers.CharField()
    enabled = serializers.BooleanField(help_text="Whether scheduled runs include it.")
    user_filter = serializers.CharField(allow_blank=True)
    client_id = serializers.UUIDField(allow_null=True, help_text="Client of new users; null: the default client.")
    mapping = AttributeMappingOut()
    groups = serializers.DictField(
        child=serializers.CharField(), help_text="Directory groups (DN or object id) with names of tenant groups."
    )
    max_deactivation_percent = serializers.IntegerField()
    sync_every_minutes = serializers.IntegerField(allow_null=True)
    next_run_at = serializers.DateTimeField(allow_null=True)
    secret_set_at = serializers.DateTimeField()
    last_run = LastDirectoryRunOut(allow_null=True)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class DirectoryOut(ConfigOut):
    server = serializers.CharField(required=False)
    port = serializers.IntegerField(required=False)
    tls = serializers.ChoiceField((LDAPS, STARTTLS, PLAIN), required=False)
    ca_certificate = serializers.CharField(required=False, allow_blank=True)
    base_dn = serializers.CharField(required=False)
    bind_dn = serializers.CharField(required=False)
    directory_tenant_id = serializers.CharField(required=False)
    application_id = serializers.CharField(required=False)
    cloud = serializers.CharField(required=False)


class DirectoryListOut(PaginationOut):
    directories = DirectoryOut(many=True)


class DirectoryRunListOut(PaginationOut):
    runs = DirectoryRunOut(many=True)


class DirectorySampleOut(serializers.Serializer[object]):
    external_id = serializers.CharField(allow_blank=True, help_text="Id in the directory; empty if unknown.")
    email = serializers.CharField(allow_blank=True)
    name = serializers.CharField(allow_blank=True)
    active = serializers.BooleanField(help_text="Whether the user is enabled in the directory.")
    metadata = serializers.DictField(child=serializers.CharField())
    app_metadata = serializers.DictField(child=serializers.CharField())
    problem = serializers.CharField(allow_blank=True)


class DirectoryTestOut(serializers.Serializer[object]):
    success = serializers.BooleanField(help_text="Whether the directory can be read.")
    message = serializers.CharField(help_text="What to do if it failed.")
    sample_users = DirectorySampleOut(many=True, help_text="The first few users as they would be created.")


def directory(shown: DirectoryWithLastRun) -> dict[str, object]:
    """Return the response fields of a configuration; the secret is not among them."""
    last = shown.last_run and fields_of(LastDirectoryRunOut, shown.last_run)
    mapping = DEFAULT_MAPPING | shown.config.mapping
    return {**fields_of(ConfigOut, shown.config, last_run=last, mapping=mapping), **shown.config.target}


def run(row: DirectoryRun) -> dict[str, object]:
    """Return the response fields of a stored run, without names of people."""
    return fields_of(DirectoryRunOut, row, directory_id=row.config_id)


def ran(done: Ran) -> dict[str, object]:
    """Return the response fields of a run for its own caller, with names in the preview."""
    return {**run(done.run), "preview_users": done.tally.preview}


def tried(trial: Tried) -> dict[str, object]:
    """Return the response fields of a test."""
    return {
        "success": not trial.problem,
        "message": trial.problem or "The directory can be read.",
        "sample_users": [fields_of(DirectorySampleOut, entry, active=entry.enabled) for entry in trial.sample],
    }
