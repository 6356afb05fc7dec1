"""A pushed request stays until one of the browsers that have opened it finishes it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("openid", "0005_journal_of_consents"),
    ]

    operations = [
        migrations.AddField(
            model_name="authorizationrequest",
            name="pushed_digest",
            field=models.BinaryField(null=True),
        ),
        migrations.AddIndex(
            model_name="authorizationrequest",
            index=models.Index(
                condition=models.Q(("pushed_digest__isnull", False)),
                fields=["pushed_digest"],
                name="authorization_request_pushed",
            ),
        ),
    ]
