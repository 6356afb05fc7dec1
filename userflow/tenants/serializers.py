from uuid import UUID

from rest_framework import serializers

from identity_platform.api.fields import Boolean, QueryChoice, Text
from identity_platform.api.json_field import JsonObject
from identity_platform.api.pagination import PageQuery, PaginationOut
from tenants.models import Tenant
from tenants.settings.json_schemas import json_schema, response_schema
from tenants.states import State


def record(tenant: Tenant, client_id: UUID | None) -> dict[str, object]:
    """Return a tenant as the API shows it."""
    database = tenant.database
    return {
        "tenant_id": tenant.pk,
        "name": tenant.name,
        "slug": tenant.slug,
        "status": database.status,
        "settings": tenant.settings,
        "client_id": client_id,
        "database": {"host": database.server.host, "name": database.name, "status": database.status},
        "created_at": tenant.created_at,
    }


class SettingsIn(JsonObject):
    """Settings to set; null restores a default. `tenants.settings` validates them."""

    def openapi(self) -> dict[str, object]:
        return {**json_schema(nullable=True), "additionalProperties": False}


class SettingsOut(JsonObject):
    """The tenant's own settings."""

    def openapi(self) -> dict[str, object]:
        return response_schema(complete=False)


class EffectiveSettings(JsonObject):
    """Every setting with its effective value: the tenant's, else the default."""

    def openapi(self) -> dict[str, object]:
        return response_schema(complete=True)


class TenantDatabaseOut(serializers.Serializer[object]):
    host = serializers.CharField()
    name = serializers.CharField(help_text="Name of the tenant's database.")
    status = serializers.CharField(help_text="State of the tenant.")


class TenantOut(serializers.Serializer[object]):
    tenant_id = serializers.UUIDField()
    name = serializers.CharField(help_text="Name of the tenant.")
    slug = serializers.CharField()
    status = serializers.CharField(
        help_text="provisioning, active, suspended, migrating, moving, failed or deleting; only an active tenant serves users."
    )
    settings = SettingsOut()
    client_id = serializers.UUIDField(
        allow_null=True, help_text="The tenant's default client; null while it is provisioned."
    )
    database = TenantDatabaseOut()
    created_at = serializers.DateTimeField()


class TenantListQuery(PageQuery):
    name = Text(max_length=255, required=False, help_text="Part of the name, case-insensitive.")
    slug = Text(max_length=63, required=False, help_text="Exact slug, case-insensitive.")
    status = QueryChoice(
        [state.value for state in State if state is not State.DELETED],
        required=False,
        help_text="Only tenants in this state.",
    )


class TenantListOut(PaginationOut):
    tenants = TenantOut(many=True)


class TenantIn(serializers.Serializer[object]):
    name = Text(max_length=255, trim=True, help_text="Name of the tenant.")
    slug = Text(
        max_length=50,
        required=False,
        help_text="Lower-case letters, digits and hyphens; unique. Default: made from the name.",
    )
    settings = SettingsIn(required=False)


class TenantChanges(serializers.Serializer[object]):
    name = Text(max_length=255, trim=True, required=False, help_text="Name of the tenant.")
    slug = Text(
        max_length=50,
        required=False,
        help_text="Lower-case letters, digits and hyphens; unique. The issuer changes with it: send `confirm`.",
    )
    confirm = Text(max_length=63, required=False, help_text="The tenant's present slug, to confirm a new one.")
    status = Text(max_length=16, required=False, help_text="active or suspended")
    reason = Text(
        max_length=500,
        required=False,
        allow_blank=True,
        help_text="Why it is suspended, for the audit log, which the admins of the tenant can read. No personal data.",
    )
    settings = SettingsIn(required=False, help_text="Merged into the current settings; null restores a default.")


class TenantSettingsChanges(serializers.Serializer[object]):
    settings = SettingsIn(help_text="Merged into the current settings; null restores a default.")


class TenantSettingsOut(serializers.Serializer[object]):
    tenant_id = serializers.UUIDField()
    settings = SettingsOut(help_text="The tenant's own settings.")
    effective = EffectiveSettings(help_text="Every setting with its effective value.")


class TenantDeletion(serializers.Serializer[object]):
    confirm = Text(max_length=63, help_text="The tenant's slug.")
    final_backup = Boolean(
        required=False,
        default=True,
        help_text="Whether a final encrypted backup is written first. Without it the tenant cannot be restored.",
    )


class DeletedTenantOut(serializers.Serializer[object]):
    message = serializers.CharField()
    tenant_id = serializers.UUIDField()
    final_backup_until = serializers.DateTimeField(
        allow_null=True, help_text="Until then the tenant can be restored from its final backup. Null: not possible."
    )
