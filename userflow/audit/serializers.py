from rest_framework import serializers

from identity_platform.api.fields import Choice, QueryInteger, Text, Timestamp
from identity_platform.api.pagination import page_limit
from userflow.audit.actions import PLATFORM, TENANT
from userflow.named_tenant import TenantParameter


class AuditQuery(TenantParameter):
    trail = Choice(
        [TENANT, PLATFORM],
        required=False,
        help_text="`tenant` (default if a tenant is given): its own audit log. `platform`: admin sign-ins, admin users, "
        "clients, services, the tenant itself.",
    )
    actor = Text(max_length=64, required=False, help_text="Id of the actor.")
    action = Text(max_length=64, required=False, help_text="Such as `signin.refused`.")
    target = Text(max_length=64, required=False, help_text="Id of the target.")
    to = Timestamp(required=False, help_text="Before this moment.")
    cursor = QueryInteger(required=False, min_value=1, help_text="`next_cursor` of the previous page.")
    limit = page_limit(50)


# `from` is a Python keyword.
AuditQuery._declared_fields["from"] = Timestamp(required=False, help_text="At or after this moment.")


class AuditEventOut(serializers.Serializer[object]):
    id = serializers.IntegerField(help_text="Number of the event in its log; a later event has a greater one.")
    at = serializers.DateTimeField()
    action = serializers.CharField()
    outcome = serializers.CharField(help_text="success, refused or failed")
    actor_kind = serializers.CharField(help_text="operator, admin, end_user, client, system or anonymous")
    actor_id = serializers.CharField(allow_blank=True)
    target_kind = serializers.CharField(allow_blank=True)
    target_id = serializers.CharField(allow_blank=True)
    address = serializers.CharField(allow_blank=True)
    request_id = serializers.CharField(allow_blank=True)
    details = serializers.DictField()
    tenant_id = serializers.UUIDField(required=False, allow_null=True, help_text="Only in the platform's audit log.")


class AuditEventListOut(serializers.Serializer[object]):
    events = AuditEventOut(many=True)
    limit = serializers.IntegerField()
    next_cursor = serializers.IntegerField(
        allow_null=True, help_text="Send it as `cursor`; null at the end. A page before the end can have fewer events."
    )
