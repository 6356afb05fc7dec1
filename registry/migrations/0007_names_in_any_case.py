from django.db import migrations, models
from django.db.models.functions import Lower

# Of services whose names differ in case only the oldest keeps its name.
_RENAME = """
UPDATE registry_service s SET name = left(s.name, 240) || ' (' || left(s.id::text, 8) || ')', updated_at = now()
WHERE EXISTS (
  SELECT FROM registry_service o
  WHERE o.tenant_id = s.tenant_id AND lower(o.name) = lower(s.name) AND (o.created_at, o.id) < (s.created_at, s.id)
)
"""


class Migration(migrations.Migration):
    dependencies = [("registry", "0006_expiring_credentials")]
    # The release before reports the new constraint as it does the old one: 409 `SERVICE_EXISTS`.
    contracts = "1.0"

    operations = [
        migrations.RunSQL(_RENAME, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name="service",
            constraint=models.UniqueConstraint("tenant", Lower("name"), name="service_name_unique_any_case"),
        ),
        # The constraint's index serves the same search.
        migrations.RemoveIndex(model_name="service", name="service_name_any_case"),
    ]
