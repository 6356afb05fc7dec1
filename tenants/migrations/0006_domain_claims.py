import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0005_final_backup"),
    ]

    operations = [
        migrations.CreateModel(
            name="DomainClaim",
            fields=[
                ("domain", models.CharField(max_length=253, primary_key=True, serialize=False)),
                ("token", models.CharField(max_length=64)),
                ("sign_in", models.BooleanField(default=False)),
                ("claimed_at", models.DateTimeField(auto_now_add=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="domain_claims", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("sign_in", True)), fields=("tenant",), name="one_sign_in_domain"
                    )
                ],
            },
        ),
    ]
