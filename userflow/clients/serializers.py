"""Serializers of clients."""

from rest_framework import serializers

from identity_platform.api.fields import Boolean, Choice, Integer, Items, QueryBoolean, Text
from identity_platform.api.page_shapes import PageQuery, PaginationOut
from userflow.accounts.models import CONFIDENTIAL, PUBLIC, Client

MOST_ENTRIES = 100


def record(client: Client) -> dict[str, object]:
    """Return a client as responses show it, without its secret."""
    return {
        "id": client.pk,
        "client_id": client.pk,
        "tenant_id": client.tenant_id,
        "name": client.name,
        "type": client.type,
        "active": client.active,
        "status": "Active" if client.active else "Inactive",
        "tags": client.tags,
        "scopes": client.scopes,
        "project_id": client.project_id,
        "owner_id": client.owner_id,
        "self_registration": client.self_registration,
        "redirect_uris": client.redirect_uris,
        "is_default": client.is_default,
        "created_at": client.created_at,
        "updated_at": client.updated_at,
        "last_used_at": client.last_used_at,
    }


def _entries(longest: int) -> Items:
    return Items(Text(max_length=longest), most=MOST_ENTRIES, required=False)


class ClientChanges(serializers.Serializer[object]):
    name = Text(max_length=255, required=False, trim=True)
    type = Choice([PUBLIC, CONFIDENTIAL], required=False, help_text="Must be the current type; it cannot change.")
    active = Boolean(required=False)
    tags = _entries(64)
    scopes = _entries(128)
    redirect_uris = _entries(2048)
    project_id = Text(max_length=64, required=False, allow_null=True, help_text="null: no project.")
    owner_id = Text(max_length=64, required=False, allow_null=True, help_text="null: no owner.")
    self_registration = Boolean(required=False)

    def validate_tags(self, tags: list[str]) -> list[str]:
        return list(dict.fromkeys(tags))


class ClientIn(ClientChanges):
    name = Text(max_length=255, trim=True)
    type = Choice([PUBLIC, CONFIDENTIAL], required=False, default=PUBLIC)


class ClientListQuery(PageQuery):
    active = QueryBoolean(required=False)
    name = Text(max_length=255, required=False)
    tags = Text(max_length=1024, required=False, help_text="Comma-separated. Clients that have all of them.")

    def validate_tags(self, value: str) -> list[str]:
        return [tag.strip() for tag in value.split(",") if tag.strip()]


class SecretIn(serializers.Serializer[object]):
    overlap_seconds = Integer(
        required=False, min_value=0, max_value=30 * 86400, help_text="How long the current secret stays valid."
    )


class ClientOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    client_id = serializers.UUIDField(help_text="The same as id.")
    tenant_id = serializers.UUIDField()
    name = serializers.CharField()
    type = serializers.ChoiceField([PUBLIC, CONFIDENTIAL])
    active = serializers.BooleanField()
    status = serializers.ChoiceField(["Active", "Inactive"])
    tags = serializers.ListField(child=serializers.CharField())
    scopes = serializers.ListField(child=serializers.CharField())
    project_id = serializers.CharField(allow_null=True)
    owner_id = serializers.CharField(allow_null=True)
    self_registration = serializers.BooleanField()
    redirect_uris = serializers.ListField(child=serializers.CharField())
    is_default = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)


class NewClientOut(ClientOut):
    client_secret = serializers.CharField(required=False, help_text="Confidential clients; shown only once.")


class RotatedOut(NewClientOut):
    previous_secret_expires_at = serializers.DateTimeField(allow_null=True)


class ClientListOut(serializers.Serializer[object]):
    clients = ClientOut(many=True)
    pagination = PaginationOut()


class DeletedOut(serializers.Serializer[object]):
    message = serializers.CharField()
    id = serializers.UUIDField()
