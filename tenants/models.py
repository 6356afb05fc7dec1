"""Tenants, database servers, the databases of tenants, and `TenantModel`, the base of tenant tables."""

import uuid
from datetime import datetime, timedelta
from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Cast, Collate, Lower

from identity_platform.api.log_levels import LEVELS
from identity_platform.restoring import AfterRestore, NoAuthority
from tenants.states import Mode, State


class TenantModel(models.Model):
    """A table in every tenant's own database. Everything that does not inherit this lives in the global database."""

    lives_in_tenant: ClassVar[bool] = True
    # What a restore does with the rows. Each model declares it.
    after_restore: ClassVar[AfterRestore]

    class Meta:
        abstract = True


class GlobalCopy(TenantModel):
    """A copy of a row of the global database in the tenant's own one. Only `tenants.records` writes it."""

    # Of the global row when it was copied; 0 until then.
    revision = models.PositiveBigIntegerField(default=0, db_default=0)
    applied_at = models.DateTimeField(null=True)
    # Of the installation then: it is raised when an operator adopts a global database that was restored.
    applied_epoch = models.PositiveBigIntegerField(default=0, db_default=0)

    after_restore: ClassVar[AfterRestore] = NoAuthority(
        "A restore replaces it by the present row before the database opens."
    )

    class Meta:
        abstract = True


class TenantRecord(GlobalCopy):
    """One row: whose database this is (`tenants.database_servers.marks`), and a copy of the tenant (`tenants.records`).

    A copy of the template has it without a tenant.
    """

    one = models.BooleanField(primary_key=True, default=True, editable=False)
    installation = models.UUIDField()
    # Of the installation when the row was written. A higher one than the global database's was written after it.
    epoch = models.PositiveBigIntegerField()
    tenant_id = models.UUIDField(null=True)
    # The rows of every table after the migrations alone: a spare with other ones is not taken.
    template_rows: "models.JSONField[dict[str, int], dict[str, int]]" = models.JSONField(default=dict, db_default={})
    slug = models.CharField(max_length=63, default="", db_default="")
    name = models.CharField(max_length=255, default="", db_default="")
    status = models.CharField(max_length=16, default="", db_default="")
    settings: "models.JSONField[dict[str, object], dict[str, object]]" = models.JSONField(default=dict, db_default={})
    sign_in_domain = models.CharField(max_length=253, null=True)
    # The sign-in domain and former ones, which redirect.
    served_domains = ArrayField(models.CharField(max_length=253), default=list, db_default=[])
    has_webhooks = models.BooleanField(default=False, db_default=False)
    placement_revision = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(one=True), name="one_tenant_record")]


class Installation(models.Model):
    """One row: which installation this global database belongs to (`tenants.database_servers.fences`)."""

    one = models.BooleanField(unique=True, default=True, editable=False)
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # Raised when an operator adopts the installation.
    epoch = models.PositiveBigIntegerField(default=1)
    # Which physical database this is (`tenants.database_servers.fences.home`).
    home = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(one=True), name="one_installation")]


class DatabaseServer(models.Model):
    """A PostgreSQL server that holds tenant databases. The one without URLs is the server of the global database."""

    name = models.CharField(max_length=63, unique=True)
    # Connection URLs carry passwords, so they are sealed under the platform's data key.
    url_sealed = models.BinaryField(null=True, editable=False)
    admin_url_sealed = models.BinaryField(null=True, editable=False)
    # Shown in responses as `database.host`.
    host = models.CharField(max_length=255)
    capacity = models.PositiveIntegerField(default=1_000, help_text="How many tenants it takes at most.")
    accepts_tenants = models.BooleanField(default=True)
    # Where its machines are, standbys included. Empty: not stated, so no tenant that is bound to a region comes here.
    region = models.CharField(max_length=63, blank=True, default="", db_default="")
    # What else tells it from others, such as ssd or premium; a new tenant can ask for some of them.
    labels = ArrayField(models.CharField(max_length=63), blank=True, default=list, db_default=[])
    # What roles like the platform's may open (`tenants.database_servers.queries.FREE_FOR_PLATFORM`); null until it is read.
    connection_limit = models.PositiveIntegerField(null=True, editable=False)
    # Incremented when the URLs change, so that pooled connections to the old URL are not used again.
    revision = models.PositiveIntegerField(default=1)
    # Raised here before they are raised in the server's mark (`tenants.database_servers.fences`).
    fence_revision = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    fence_beats = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    # It belongs to the installation that this one is a copy of: nothing connects to it (`tenants.jobs.adoption`).
    detached = models.BooleanField(default=False, db_default=False, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class ServerHealth(models.Model):
    """What a server said when it was last checked (`tenants.database_servers.server_health`)."""

    server = models.OneToOneField(DatabaseServer, on_delete=models.CASCADE, primary_key=True, related_name="health")
    responds = models.BooleanField()
    seconds = models.FloatField(null=True, help_text="Until the connection was open.")
    connections = models.PositiveIntegerField(null=True)
    max_connections = models.PositiveIntegerField(null=True, help_text="Without those reserved for superusers.")
    tenants = models.PositiveIntegerField(null=True, help_text="On the server, so that a page need not count them.")
    checked_at = models.DateTimeField()


class OperatingMode(models.Model):
    """What operators have limited the platform (no server) or one database server to (`tenants.operating_modes`)."""

    server = models.OneToOneField(DatabaseServer, on_delete=models.CASCADE, null=True, related_name="operating_mode")
    mode = models.CharField(max_length=20, choices=[(mode, mode) for mode in Mode])
    # Announced to callers. The mode ends when an operator ends it, as the work may take longer.
    until = models.DateTimeField(null=True)
    reason = models.CharField(max_length=200, blank=True, default="")
    started_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                models.Value(1), condition=models.Q(server=None), name="one_operating_mode_of_the_platform"
            ),
            models.CheckConstraint(condition=models.Q(mode__in=list(Mode)), name="known_operating_mode"),
        ]


class LogLevel(models.Model):
    """A log level that an operator has set for a limited time (`tenants.log_levels`)."""

    # Empty for all areas without a level of their own.
    area = models.CharField(max_length=50, unique=True, blank=True)
    level = models.CharField(max_length=10, choices=[(level, level) for level in LEVELS])
    until = models.DateTimeField()
    set_at = models.DateTimeField(auto_now=True)

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        return models.Q(until__lt=moment)


class ConnectionLease(models.Model):
    """How many connections to a server one process may open (`tenants.backend.leases`)."""

    process = models.UUIDField()
    server = models.ForeignKey(DatabaseServer, on_delete=models.CASCADE, related_name="leases")
    # Where the process runs, for operators.
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    # By which others on the same machine see that it was killed (`identity_platform.processes`).
    machine = models.CharField(max_length=63)
    started = models.PositiveBigIntegerField(null=True)
    command = models.CharField(max_length=63, help_text="Empty for a worker of the server.")
    connections = models.PositiveIntegerField(help_text="To databases of tenants.")
    global_connections = models.PositiveIntegerField(help_text="To the global database, on its server only.")
    # When the process last got nothing although it had less than its share.
    refused_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["process", "server"], name="lease_of_process")]
        indexes = [models.Index(fields=["expires_at"], name="lease_expires")]


class Tenant(models.Model):
    """A customer with a database of its own."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=255)
    slug = models.CharField(max_length=63)
    settings: "models.JSONField[dict[str, object], dict[str, object]]" = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    # Once the tenant has added a domain, which is in its own database: this saves opening the others.
    has_domains = models.BooleanField(null=True, editable=False)
    # Raised with each change of what the tenant's own database has a copy of (`tenants.records`).
    revision = models.PositiveBigIntegerField(default=1, db_default=1, editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(Lower("slug"), name="tenant_slug_unique")]
        indexes = [
            models.Index(fields=["-created_at", "id"], name="tenant_newest_first"),
            # In byte order, in which the rows that begin with some letters follow each other: for the console's search.
            models.Index(Collate(Lower("slug"), "C"), name="tenant_slug_begins"),
            models.Index(Collate(Lower("name"), "C"), name="tenant_name_begins"),
        ]

    def __str__(self) -> str:
        return self.slug


class FormerSlug(models.Model):
    """A slug that a tenant had before. No other tenant can take it, and its addresses lead to the present ones."""

    # In lower case.
    slug = models.CharField(max_length=63, primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="former_slugs")
    ended_at = models.DateTimeField(auto_now_add=True)


class TenantDatabase(models.Model):
    """Where a tenant's database is and what state it is in."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="database")
    server = models.ForeignKey(DatabaseServer, on_delete=models.PROTECT, related_name="databases")
    name = models.CharField(max_length=63)
    status = models.CharField(max_length=16, choices=[(s.value, s.value) for s in State], default=State.PROVISIONING)
    # Why the last step failed, for operators. Contains no user data.
    reason = models.TextField(blank=True, default="")
    schema_version = models.CharField(max_length=40, blank=True, default="")
    # Raised when another database becomes the tenant's, by a move or a restore.
    placement_revision = models.PositiveBigIntegerField(default=1, db_default=1, editable=False)
    # Whether the database was away when rights were taken away, or is missing: its copies still have them (`tenants.records`).
    copies_lag = models.BooleanField(default=False, db_default=False, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["server", "name"], name="tenant_database_unique")]
        indexes = [
            models.Index(fields=["status"], name="tenant_database_status"),
            models.Index(fields=["schema_version"], name="tenant_database_version"),
            models.Index(fields=["tenant"], name="tenant_copies_lag", condition=models.Q(copies_lag=True)),
        ]

    def __str__(self) -> str:
        return self.name


class WarmDatabase(models.Model):
    """A spare database of the warm pool, or the copy for a tenant that is being moved or restored."""

    server = models.ForeignKey(DatabaseServer, on_delete=models.CASCADE, related_name="warm_databases")
    name = models.CharField(max_length=63, unique=True)
    schema_version = models.CharField(max_length=40)
    ready = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["ready", "schema_version"], name="warm_database_ready")]


class WebhookTenant(models.Model):
    """A tenant with webhook endpoints, which are in its own database: this row saves opening it to find out."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="webhooks")
    # When an endpoint was last created. The row is kept for a while after that.
    touched_at = models.DateTimeField(auto_now_add=True)
    # When a deliverer last checked, with or without a wakeup.
    swept_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["swept_at"], name="webhook_tenant_swept")]


class WebAuthnClaim(models.Model):
    """A domain or origin that the passkeys of one tenant use (`tenants.addresses.webauthn_claims`)."""

    name = models.CharField(max_length=300, primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="webauthn_claims")


class DomainClaim(models.Model):
    """A domain that its holder has verified by DNS. It belongs to one tenant (`tenants.addresses.domain_claims`)."""

    # In the form of DNS: lower case, with `xn--` for other letters.
    domain = models.CharField(max_length=253, primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="domain_claims")
    # The value of the TXT record, for a tenant whose database is restored from before it had the domain.
    token = models.CharField(max_length=64)
    # Whether the tenant's issuer, endpoints and pages are on this domain.
    sign_in = models.BooleanField(default=False)
    # When it was the sign-in domain last, if it is not now: its pages redirect to the address in force.
    sign_in_ended_at = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(auto_now_add=True)
    # When the record was last looked up with a result, and since when it is gone. Here, so that the domain of a tenant whose
    # database cannot be used is withdrawn too.
    checked_at = models.DateTimeField(null=True)
    lost_since = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant"], condition=models.Q(sign_in=True), name="one_sign_in_domain")
        ]
        indexes = [
            models.Index(fields=["tenant"], condition=models.Q(lost_since__isnull=False), name="domain_claim_lost")
        ]


class FinalBackup(models.Model):
    """The encrypted backup of a deleted tenant. While this row exists, so does the data key that opens the file."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="final_backup")
    file = models.CharField(max_length=1000)
    # Which backup it is, as its sealed manifest says too. Null: deleted by a release that did not store it.
    begun_at = models.DateTimeField(null=True, editable=False)
    delete_after = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)


class DataKey(models.Model):
    """The key that seals one owner's secrets, wrapped by a key of the ring, which is never stored in a database."""

    PLATFORM: ClassVar[str] = "platform"

    owner = models.CharField(max_length=36, primary_key=True, help_text="A tenant's id, or `platform`.")
    ring_key_id = models.CharField(max_length=64, db_index=True)
    wrapped = models.BinaryField(editable=False)
    created_at = models.DateTimeField(auto_now_add=True)


class UndeliveredRevocation(TenantModel):
    """A revocation that triggers have written in the transaction of the change, on its way to the journal."""

    kind = models.CharField(max_length=40)
    # SHA-256 of what identifies the revoked authority.
    digest = models.BinaryField()
    # False: the authority was granted again.
    revoked = models.BooleanField()
    noted_at = models.DateTimeField()
    # When the revocation takes effect.
    ends_at = models.DateTimeField()

    after_restore: ClassVar[AfterRestore] = NoAuthority("The journal takes older entries only beside newer ones.")


class JournaledRevocation(models.Model):
    """What a tenant's database must not have again when an older state of it is restored (`tenants.journals.revocations`).

    No foreign key: entries outlive the deletion of the tenant, which can be restored as long as its data key exists.
    """

    tenant_id = models.UUIDField()
    kind = models.CharField(max_length=40)
    # HMAC of the digest in the tenant's database: ids and addresses of users cannot be found out from it.
    digest = models.BinaryField()
    revoked = models.BooleanField()
    noted_at = models.DateTimeField()
    ends_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "kind", "digest"], name="journaled_revocation_unique")
        ]
        indexes = [models.Index(fields=["noted_at"], name="journaled_revocation_age")]

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Return the entries that no backup needs: no backup opens without the data key, or all are younger."""
        data_key = DataKey.objects.filter(owner=Cast(models.OuterRef("tenant_id"), models.CharField()))
        useless = ~models.Q(models.Exists(data_key))
        if days := settings.REVOCATION_JOURNAL_DAYS:
            useless |= models.Q(noted_at__lt=moment - timedelta(days=days))
        return useless
