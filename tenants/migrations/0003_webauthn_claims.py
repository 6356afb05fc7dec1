from typing import Any

import django.db.models.deletion
import structlog
from django.db import migrations, models

from tenants.addresses.webauthn_claims import names_of

log = structlog.get_logger("identity.tenants")


def claim_names(apps: Any, schema_editor: Any) -> None:
    """Claim what tenants use already, the oldest tenant first. A name that an older one has is reported.

    The younger tenant keeps its settings, so that its users can still sign in; `check_tenants` names it until it changes
    them.
    """
    tenant_model, claim_model = apps.get_model("tenants", "Tenant"), apps.get_model("tenants", "WebAuthnClaim")
    using = tenant_model.objects.filter(settings__has_any_keys=["webauthn_rp_id", "webauthn_origins"])
    for tenant in using.order_by("created_at", "pk"):
        for name in sorted(names_of(tenant.settings)):
            found, _ = claim_model.objects.get_or_create(name=name, defaults={"tenant": tenant})
            if found.tenant_id != tenant.pk:
                log.warning("webauthn_name_shared", name=name, tenant=tenant.slug, claimed_by=str(found.tenant_id))


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0002_webhook_tenants"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebAuthnClaim",
            fields=[
                ("name", models.CharField(max_length=300, primary_key=True, serialize=False)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="webauthn_claims",
                        to="tenants.tenant",
                    ),
                ),
            ],
        ),
        migrations.RunPython(claim_names, migrations.RunPython.noop),
    ]
