"""How a tenant looks to its end users: name, logo, colors, links and texts, in the tenant's own database."""

from typing import ClassVar

from django.db import models

from identity_platform.restoring import AfterRestore, NoAuthority
from tenants.models import TenantModel

# Language to text by name (`userflow.branding.texts`).
Texts = dict[str, dict[str, str]]


class Branding(TenantModel):
    """The branding of the tenant, one row. An empty field stands for the platform's default."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    name = models.CharField(max_length=64, blank=True, default="")
    # Decoded and written again by `logos.safe_logo`.
    logo = models.BinaryField(null=True)
    logo_type = models.CharField(max_length=16, blank=True, default="")
    # The part of the logo's address that changes with its bytes.
    logo_digest = models.CharField(max_length=32, blank=True, default="")
    # Accent colors as #rrggbb, on light and on dark surfaces.
    color_light = models.CharField(max_length=7, blank=True, default="")
    color_dark = models.CharField(max_length=7, blank=True, default="")
    terms_url = models.CharField(max_length=2048, blank=True, default="")
    privacy_url = models.CharField(max_length=2048, blank=True, default="")
    support_url = models.CharField(max_length=2048, blank=True, default="")
    sender_name = models.CharField(max_length=64, blank=True, default="")
    # Of mails that no page has caused.
    language = models.CharField(max_length=2, blank=True, default="")
    texts: "models.JSONField[Texts, Texts]" = models.JSONField(default=dict)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[models.Manager["Branding"]]
    after_restore: ClassVar[AfterRestore] = NoAuthority("It is only shown.")

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="branding_one_row")]
