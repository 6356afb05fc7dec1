"""The rows of the audit trail. Ids and facts, never personal data, never secrets."""

from collections.abc import Mapping
from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from identity_platform.restoring import AfterRestore, NoAuthority


class AuditEvent(models.Model):
    """Who did what on what, from where, and how it ended."""

    at = models.DateTimeField(db_default=Now())
    action = models.CharField(max_length=64, help_text="noun.verb, as `end_user.registered`")
    outcome = models.CharField(max_length=16, default="success", help_text="success, refused or failed")
    actor_kind = models.CharField(max_length=16, help_text="operator, admin, end_user, client, system or anonymous")
    actor_id = models.CharField(max_length=64, blank=True, default="")
    target_kind = models.CharField(max_length=32, blank=True, default="")
    target_id = models.CharField(max_length=64, blank=True, default="")
    address = models.CharField(max_length=45, blank=True, default="")
    request_id = models.CharField(max_length=128, blank=True, default="")
    details: "models.JSONField[Mapping[str, object], dict[str, object]]" = models.JSONField(default=dict)

    class Meta:
        abstract = True
        ordering = ["-id"]


class TenantEvent(AuditEvent):
    """An event of one tenant, in that tenant's database."""

    lives_in_tenant: ClassVar[bool] = True
    after_restore: ClassVar[AfterRestore] = NoAuthority("They say what was done.")

    class Meta(AuditEvent.Meta):
        db_table = "audit_tenantevent"
        indexes = [
            models.Index(fields=["action", "-id"], name="tenant_event_action"),
            models.Index(fields=["actor_id", "-id"], name="tenant_event_actor"),
            models.Index(fields=["target_id", "-id"], name="tenant_event_target"),
        ]


class PlatformEvent(AuditEvent):
    """An event of the platform: operators, admin users, tenants, registry, keys. `tenant_id` says whom it concerns."""

    tenant_id = models.UUIDField(null=True)

    class Meta(AuditEvent.Meta):
        db_table = "audit_platformevent"
        indexes = [
            models.Index(fields=["tenant_id", "-id"], name="platform_event_tenant"),
            models.Index(fields=["action", "-id"], name="platform_event_action"),
            models.Index(fields=["actor_id", "-id"], name="platform_event_actor"),
            models.Index(fields=["target_id", "-id"], name="platform_event_target"),
        ]


class Seal(models.Model):
    """One link of a trail's hash chain; `sealing` makes, `verification` checks and `purge` drops them.

    A link of kind `rows` covers every event with an id from `from_id` to `to_id`. A link of kind `anchor` says that the
    events up to `to_id` and the links up to `purged_number` are gone because their time had come.
    """

    ROWS: ClassVar[str] = "rows"
    ANCHOR: ClassVar[str] = "anchor"

    # Counted by the sealer, not by a sequence: a number that is missing is a link that was removed.
    number = models.BigIntegerField(primary_key=True)
    kind = models.CharField(max_length=8)
    from_id = models.BigIntegerField()
    to_id = models.BigIntegerField()
    count = models.IntegerField(help_text="How many events it covers, or how many an anchor has let go.")
    newest_at = models.DateTimeField(help_text="The time of the newest event it covers: the retention asks for it.")
    purged_number = models.BigIntegerField(null=True)
    # SHA-256 over the events; of an anchor, the MAC of the last link that it has let go.
    digest = models.BinaryField()
    # MAC of the link before, and of this one with it: HMAC-SHA-256 under the owner's data key.
    previous = models.BinaryField()
    mac = models.BinaryField()
    sealed_at = models.DateTimeField(db_default=Now())

    class Meta:
        abstract = True


class TenantSeal(Seal):
    """A link of a tenant's chain, in the tenant's database."""

    lives_in_tenant: ClassVar[bool] = True
    after_restore: ClassVar[AfterRestore] = NoAuthority("`verify_audit` compares their end with the global database.")

    class Meta(Seal.Meta):
        db_table = "audit_tenantseal"
        indexes = [
            models.Index(fields=["to_id"], condition=models.Q(kind=Seal.ANCHOR), name="tenant_seal_anchors"),
        ]


class PlatformSeal(Seal):
    """A link of the platform's chain."""

    class Meta(Seal.Meta):
        db_table = "audit_platformseal"
        indexes = [
            models.Index(fields=["to_id"], condition=models.Q(kind=Seal.ANCHOR), name="platform_seal_anchors"),
        ]


class ChainHead(models.Model):
    """The newest link of each chain, kept in the global database.

    A chain alone cannot show that its newest links were cut off together with their events; this copy, in another
    database than a tenant's trail, does. The sealer also logs each head, for a log that is kept elsewhere.
    """

    owner = models.CharField(max_length=36, primary_key=True, help_text="A tenant's id, or `platform`.")
    number = models.BigIntegerField()
    mac = models.BinaryField()
    sealed_at = models.DateTimeField(auto_now=True)
