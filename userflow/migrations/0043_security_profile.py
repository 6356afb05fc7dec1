from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0042_refresh_token_rotation"),
    ]

    operations = [
        migrations.AddField(
            model_name="client",
            name="security_profile",
            field=models.CharField(blank=True, db_default="", default="", max_length=16),
        ),
        migrations.AddField(
            model_name="pendingclientchange",
            name="ends_before_profile",
            field=models.BooleanField(null=True),
        ),
    ]
