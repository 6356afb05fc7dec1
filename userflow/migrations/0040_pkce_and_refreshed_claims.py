from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0039_mail_queue"),
    ]

    operations = [
        migrations.AddField(
            model_name="client",
            name="require_pkce",
            field=models.BooleanField(db_default=True, default=True),
        ),
        migrations.AddField(
            model_name="endusersession",
            name="id_token_claims",
            field=models.JSONField(db_default=[], default=list),
        ),
    ]
