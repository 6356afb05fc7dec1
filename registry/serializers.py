from datetime import datetime

import orjson
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from identity_platform.api.fields import Choice, QueryChoice, StrictField, Text, Timestamp, fields_of
from identity_platform.api.json_field import JsonObject
from identity_platform.api.pagination import PaginationOut
from identity_platform.api.url_field import HttpUrl
from registry import models
from registry.actions import ReadCredentials, status_of
from registry.models import Service, ServiceCredential
from userflow.named_tenant import TenantPageQuery, TenantParameter

LARGEST_SECRET = LARGEST_METADATA = 64 * 1024
DEEPEST_METADATA = 16


class Secret(StrictField):
    """A secret: a string or a JSON object of at most 64 KiB. No message repeats it."""

    default_error_messages = {
        "invalid": "Send a string or a JSON object.",
        "blank": "This field may not be empty.",
        "max_bytes": "Send at most {max_bytes} bytes.",
    }

    def to_internal_value(self, data: object) -> models.Secret:
        if not isinstance(data, str | dict):
            self.fail("invalid")
        if data == "":
            self.fail("blank")
        size = len(data.encode()) if isinstance(data, str) else len(orjson.dumps(data))
        if size > LARGEST_SECRET:
            self.fail("max_bytes", max_bytes=LARGEST_SECRET)
        return data

    def openapi(self) -> dict[str, object]:
        return {
            "oneOf": [
                {"type": "string", "minLength": 1, "maxLength": LARGEST_SECRET},
                {"type": "object", "additionalProperties": {}},
            ]
        }


def free_metadata() -> JsonObject:
    """Return the metadata field of a service or a credential."""
    return JsonObject(required=False, max_bytes=LARGEST_METADATA, max_depth=DEEPEST_METADATA)


class ServiceListQuery(TenantPageQuery):
    name = Text(required=False, max_length=255, help_text="The whole name, in any case.")
    type = Text(required=False, max_length=models.LONGEST_TYPE, help_text="The whole type, in any case.")
    status = QueryChoice(models.STATUSES, required=False, help_text="Only services in this state.")


class ServiceIn(serializers.Serializer[object]):
    name = Text(max_length=255, trim=True, help_text="Unique in the tenant, capitals count.")
    description = Text(max_length=10_000, required=False, allow_blank=True, single_line=False)
    type = Text(max_length=models.LONGEST_TYPE, trim=True, help_text="A category of your choice, such as payment.")
    base_url = HttpUrl(
        help_text="Absolute http or https URL. An international host name is stored in A-labels (`xn--…`)."
    )
    api_version = Text(max_length=255, required=False, allow_blank=True)
    status = Choice(
        models.STATUSES, required=False, default=models.ACTIVE, help_text="An inactive service returns no secrets."
    )
    metadata = free_metadata()


class ServiceChanges(serializers.Serializer[object]):
    name = Text(max_length=255, trim=True, required=False, help_text="Unique in the tenant, capitals count.")
    description = Text(max_length=10_000, required=False, allow_blank=True, single_line=False)
    type = Text(
        max_length=models.LONGEST_TYPE,
        trim=True,
        required=False,
        help_text="A category of your choice, such as payment.",
    )
    base_url = HttpUrl(required=False)
    api_version = Text(max_length=255, required=False, allow_blank=True)
    status = Choice(models.STATUSES, required=False, help_text="An inactive service returns no secrets.")
    metadata = free_metadata()


class ServiceOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    type = serializers.CharField(help_text="Category of the service, such as payment.")
    status = serializers.ChoiceField(models.STATUSES, help_text="An inactive service returns no secrets.")
    base_url = serializers.CharField()
    api_version = serializers.CharField(allow_blank=True)
    tenant_id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    metadata = serializers.DictField()


class ServiceListOut(serializers.Serializer[object]):
    services = ServiceOut(many=True)
    pagination = PaginationOut()


class ServiceCredentialQuery(TenantParameter):
    status = QueryChoice(
        (models.ACTIVE, models.REVOKED, models.EXPIRED),
        required=False,
        default=models.ACTIVE,
        help_text="Only credentials in this state.",
    )


class ServiceCredentialIn(serializers.Serializer[object]):
    name = Text(max_length=255, trim=True, help_text="Unique for the service, capitals count.")
    type = Choice(models.CREDENTIAL_TYPES, required=False, default=models.API_KEY, help_text="Form of the secret.")
    secret = Secret(help_text="String or JSON object of at most 64 KiB; stored encrypted.")
    metadata = free_metadata()
    expires_at = Timestamp(required=False, allow_null=True, help_text="null: it does not expire.")


class ServiceCredentialChanges(serializers.Serializer[object]):
    secret = Secret(required=False, help_text="New secret; replaces the old one at once.")
    status = Choice(
        (models.ACTIVE, models.REVOKED), required=False, help_text="A revoked credential returns no secret."
    )
    metadata = free_metadata()
    expires_at = Timestamp(required=False, allow_null=True, help_text="null: it does not expire.")


class ServiceCredentialOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    service_id = serializers.UUIDField()
    name = serializers.CharField()
    type = serializers.ChoiceField(models.CREDENTIAL_TYPES, help_text="Form of the secret.")
    status = serializers.ChoiceField(
        (models.ACTIVE, models.REVOKED, models.EXPIRED), help_text="`expired` follows from `expires_at`."
    )
    metadata = serializers.DictField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True, help_text="When the credential expires; null: it does not.")
    last_read_at = serializers.DateTimeField(allow_null=True)


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "object", "additionalProperties": {}}]})
class SecretValue(serializers.JSONField):
    """A string or an object; null where the credential is not active."""


class ServiceSecretOut(ServiceCredentialOut):
    service_id = None  # type: ignore[assignment]  # DRF's way to remove an inherited field
    secret = SecretValue(allow_null=True, help_text="As it was stored; null unless the credential is active.")


class ServiceCredentialWithSecretOut(ServiceCredentialOut):
    secret = SecretValue(allow_null=True, help_text="As it was stored; null unless the credential is active.")


class ServiceSecretsOut(serializers.Serializer[object]):
    service_id = serializers.UUIDField()
    service_name = serializers.CharField()
    service_type = serializers.CharField()
    base_url = serializers.CharField()
    credentials = ServiceSecretOut(many=True)
    unreadable = serializers.ListField(
        child=serializers.UUIDField(),
        required=False,
        help_text="Credentials whose stored secret was tampered with: store it again. Only present if there are any.",
    )
    retrieved_at = serializers.DateTimeField()


class PresentedTokenOut(serializers.Serializer[object]):
    claims = serializers.DictField()
    header = serializers.DictField()
    kind = serializers.CharField()
    tenant_id = serializers.UUIDField(allow_null=True, help_text="Tenant of the caller; null for an operator.")
    client_id = serializers.UUIDField(allow_null=True, help_text="Client of the token; null for admin users.")
    roles = serializers.ListField(child=serializers.CharField())
    permissions = serializers.ListField(child=serializers.CharField())
    expires_in = serializers.IntegerField()


def service(row: Service) -> dict[str, object]:
    """Return the response fields of a service."""
    return fields_of(ServiceOut, row)


def credential(row: ServiceCredential, at: datetime) -> dict[str, object]:
    """Return the response fields of a credential, without its secret."""
    return fields_of(ServiceCredentialOut, row, status=status_of(row, at))


def one_secret(row: ServiceCredential, secret: models.Secret | None, at: datetime) -> dict[str, object]:
    """Return the response fields of a credential with its secret."""
    return fields_of(ServiceCredentialWithSecretOut, row, status=status_of(row, at), secret=secret)


def secrets(service_credentials: ReadCredentials) -> dict[str, object]:
    """Return the response to a read of a service's credentials."""
    return {
        "service_id": service_credentials.service.pk,
        "service_name": service_credentials.service.name,
        "service_type": service_credentials.service.type,
        "base_url": service_credentials.service.base_url,
        "credentials": [
            fields_of(
                ServiceSecretOut,
                row,
                status=status_of(row, service_credentials.at),
                secret=service_credentials.secrets.get(row.pk),
            )
            for row in service_credentials.credentials
        ],
        **({"unreadable": service_credentials.unreadable} if service_credentials.unreadable else {}),
        "retrieved_at": service_credentials.at,
    }
