"""External services of a tenant and the secrets bound to them, in the global database."""

import uuid
from uuid import UUID

import orjson
from django.db import models
from django.db.models.functions import Collate, Lower

from identity_platform.crypto import SealContext, seal, unseal
from identity_platform.transfer.runs import ImportRun
from tenants import keys
from tenants.models import Tenant

ACTIVE, INACTIVE = "active", "inactive"
REVOKED, EXPIRED = "revoked", "expired"
STATUSES = (ACTIVE, INACTIVE)
# The kind of target in audit events.
CREDENTIAL = "service_credential"
API_KEY = "api_key"
LONGEST_TYPE = 255
CREDENTIAL_TYPES = (API_KEY, "basic", "oauth2", "bearer", "custom")


class Service(models.Model):
    """An external service that a tenant uses (the specification's Service)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # The indexes below begin with the tenant, so it needs none of its own.
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="services", db_index=False)
    name = models.CharField(max_length=255)
    description = models.TextField(blank=True, default="")
    type = models.CharField(max_length=LONGEST_TYPE)
    status = models.CharField(max_length=16, choices=[(s, s) for s in STATUSES], default=ACTIVE)
    base_url = models.CharField(max_length=2048)
    api_version = models.CharField(max_length=255, blank=True, default="")
    metadata: "models.JSONField[dict[str, object], dict[str, object]]" = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="service_name_unique"),
            # `?name=` finds a service in any case, so that two must not differ in case only.
            models.UniqueConstraint("tenant", Lower("name"), name="service_name_unique_any_case"),
        ]
        # Each ends in the list's order, so that a page with any filter is read from an index alone.
        indexes = [
            models.Index(fields=["tenant", "-created_at", "-id"], name="service_newest_first"),
            models.Index(fields=["tenant", "status", "-created_at", "-id"], name="service_status"),
            models.Index(fields=["tenant", "type", "status", "-created_at", "-id"], name="service_type"),
            # In byte order, in which the rows that begin with some letters follow each other: for the console's search.
            models.Index(Collate(Lower("name"), "C"), name="service_name_begins"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class ServiceCount(models.Model):
    """The number of a tenant's services by type and status; of all types if `type` is empty.

    Triggers keep it (migration 0001), so a list's total costs the same with ten services and with a hundred thousand. They
    delete rows at zero, so a deleted tenant leaves none behind.
    """

    tenant_id = models.UUIDField()
    type = models.CharField(max_length=LONGEST_TYPE)
    status = models.CharField(max_length=16)
    services = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "type", "status"], name="service_count_unique")]


class ServiceCredential(models.Model):
    """A secret bound to a service, sealed for its tenant, its service and its row (`seal_secret`)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="service_credentials")
    # The unique constraint's index begins with the service.
    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="credentials", db_index=False)
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=16, choices=[(t, t) for t in CREDENTIAL_TYPES], default=API_KEY)
    status = models.CharField(max_length=16, choices=[(ACTIVE, ACTIVE), (REVOKED, REVOKED)], default=ACTIVE)
    secret = models.BinaryField(editable=False)
    metadata: "models.JSONField[dict[str, object], dict[str, object]]" = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    expires_at = models.DateTimeField(null=True)
    last_read_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["service", "name"], name="service_credential_name_unique")]
        indexes = [
            models.Index(fields=["expires_at"], condition=models.Q(status=ACTIVE), name="service_credential_expiry")
        ]


class ServiceImport(ImportRun):
    """One import of a file of services, in the same database as the services."""

    # The unique index begins with the tenant.
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="service_imports", db_index=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "digest"], condition=models.Q(ended_at=None), name="service_import_one_at_a_time"
            )
        ]
        indexes = [
            models.Index(fields=["tenant", "-begun_at"], name="service_import_newest_first"),
            models.Index(fields=["touched_at"], name="service_import_age"),
        ]


# A string or a JSON object.
Secret = str | dict[str, object]


def _context(tenant_id: UUID, service_id: UUID, credential_id: UUID) -> SealContext:
    # The service is part of the context: an attacker who can write to the table, but holds no key, could otherwise bind a
    # secret to a service of their own and read it through the API.
    return SealContext(
        tenant=str(tenant_id),
        table="registry_servicecredential",
        column="secret",
        row=f"{service_id}/{credential_id}",
    )


def seal_secret(secret: object, *, tenant_id: UUID, service_id: UUID, credential_id: UUID) -> bytes:
    """Seal a string or an object for its row (AES-256-GCM under the tenant's data key). Raises DataKeyLocked."""
    context = _context(tenant_id, service_id, credential_id)
    return seal(orjson.dumps(secret), data_key=keys.tenant_key(tenant_id), context=context)


def open_secret(sealed: bytes, *, tenant_id: UUID, service_id: UUID, credential_id: UUID) -> Secret:
    """Open a sealed secret.

    Raises SealBroken if it was altered or copied from another row, service or tenant, and DataKeyLocked.
    """
    context = _context(tenant_id, service_id, credential_id)
    opened = unseal(sealed, data_key=keys.tenant_key(tenant_id), context=context)
    secret: Secret = orjson.loads(opened)
    return secret
