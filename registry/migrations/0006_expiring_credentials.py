from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0005_beginnings_of_names")]

    operations = [
        migrations.AddIndex(
            model_name="servicecredential",
            index=models.Index(
                condition=models.Q(("status", "active")), fields=["expires_at"], name="service_credential_expiry"
            ),
        ),
    ]
