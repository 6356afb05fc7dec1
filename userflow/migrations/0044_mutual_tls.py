from django.db import migrations, models

_TEXTS = {
    "tls_client_auth_subject_dn": 1024,
    "tls_client_auth_san_dns": 255,
    "tls_client_auth_san_uri": 1024,
    "tls_client_auth_san_ip": 45,
    "tls_client_auth_san_email": 320,
}


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0043_security_profile"),
    ]

    operations = [
        migrations.AddField(
            model_name="client",
            name="tls_client_certificate_bound_access_tokens",
            field=models.BooleanField(db_default=False, default=False),
        ),
        *(
            migrations.AddField(
                model_name="client",
                name=name,
                field=models.CharField(blank=True, db_default="", default="", max_length=longest),
            )
            for name, longest in _TEXTS.items()
        ),
        migrations.AddField(
            model_name="client",
            name="tls_client_auth_authorities",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AlterField(
            model_name="client",
            name="security_profile",
            field=models.CharField(blank=True, db_default="", default="", max_length=32),
        ),
        migrations.AlterField(
            model_name="endusersession",
            name="dpop_jkt",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
    ]
