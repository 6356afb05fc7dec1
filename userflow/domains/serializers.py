from rest_framework import serializers

from identity_platform.api.fields import Boolean, Text, fields_of
from userflow.domains.actions import LOST, PENDING, TAKEN, VERIFIED, Domain
from userflow.domains.records import record_name, record_value
from userflow.named_tenant import TenantParameter


class DomainIn(TenantParameter):
    domain = Text(
        max_length=253, help_text="Such as login.example.com; letters of other scripts as they are or as xn--."
    )


class DomainChanges(TenantParameter):
    sign_in = Boolean(help_text="Whether the tenant's issuer, endpoints and pages are on this domain.")
    disable_passkeys = Boolean(
        required=False, help_text="Change it even if passkeys cannot be used until their RP ID is in force again."
    )


class DomainRecordOut(serializers.Serializer[object]):
    type = serializers.ChoiceField(choices=["TXT"], help_text="Type of the DNS record.")
    name = serializers.CharField(help_text="Name of the DNS record.")
    value = serializers.CharField(help_text="Value of the DNS record.")


class DomainOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    domain = serializers.CharField(help_text="In the form of DNS: lower case, other letters as xn--.")
    status = serializers.ChoiceField(
        choices=[PENDING, VERIFIED, LOST, TAKEN],
        help_text="`lost`: the record is missing; `taken`: another tenant has verified the domain.",
    )
    record = DomainRecordOut(help_text="The record to set in DNS, and to keep: it is looked up daily.")
    sign_in = serializers.BooleanField(help_text="Whether the tenant's issuer, endpoints and pages are on this domain.")
    verified_at = serializers.DateTimeField(allow_null=True)
    checked_at = serializers.DateTimeField(allow_null=True)
    lost_since = serializers.DateTimeField(allow_null=True)
    withdrawn_after = serializers.DateTimeField(
        allow_null=True, help_text="When the domain is withdrawn, unless the record is back by then."
    )
    created_at = serializers.DateTimeField()


class DomainListOut(serializers.Serializer[object]):
    domains = DomainOut(many=True)


def domain(shown: Domain) -> dict[str, object]:
    """Return the fields of DomainOut."""
    row = shown.row
    return fields_of(
        DomainOut,
        shown,
        id=row.pk,
        record={"type": "TXT", "name": record_name(row.domain), "value": record_value(row.token)},
        verified_at=shown.claim.claimed_at if shown.claim else None,
        created_at=row.created_at,
    )
