import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0047_enrollment_of_sessions"),
    ]

    # The tables are in tenants' databases, where `migrate_tenants` fills that of clients; the column in the global one.
    operations = [
        migrations.CreateModel(
            name="TenantClient",
            fields=[
                ("revision", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("applied_at", models.DateTimeField(null=True)),
                ("applied_epoch", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255)),
                (
                    "type",
                    models.CharField(
                        choices=[("public", "public"), ("confidential", "confidential")],
                        default="public",
                        max_length=16,
                    ),
                ),
                ("active", models.BooleanField(default=True)),
                ("is_default", models.BooleanField(default=False)),
                ("tags", models.JSONField(blank=True, default=list)),
                ("scopes", models.JSONField(blank=True, default=list)),
                ("redirect_uris", models.JSONField(blank=True, default=list)),
                ("project_id", models.CharField(blank=True, max_length=64, null=True)),
                ("owner_id", models.CharField(blank=True, max_length=64, null=True)),
                ("self_registration", models.BooleanField(default=False)),
                ("secret_digest", models.BinaryField(null=True)),
                ("previous_secret_digest", models.BinaryField(null=True)),
                ("previous_secret_until", models.DateTimeField(editable=False, null=True)),
                ("post_logout_redirect_uris", models.JSONField(blank=True, db_default=[], default=list)),
                ("grant_types", models.JSONField(blank=True, db_default=[], default=list)),
                ("token_endpoint_auth_method", models.CharField(blank=True, db_default="", default="", max_length=32)),
                ("jwks", models.JSONField(blank=True, db_default={}, default=dict)),
                ("jwks_uri", models.CharField(blank=True, db_default="", default="", max_length=2048)),
                ("id_token_signed_response_alg", models.CharField(db_default="RS256", default="RS256", max_length=8)),
                (
                    "access_token_signed_response_alg",
                    models.CharField(db_default="ES256", default="ES256", max_length=8),
                ),
                ("backchannel_logout_uri", models.CharField(blank=True, db_default="", default="", max_length=2048)),
                ("default_max_age", models.PositiveIntegerField(blank=True, null=True)),
                ("logo_uri", models.CharField(blank=True, db_default="", default="", max_length=2048)),
                ("client_uri", models.CharField(blank=True, db_default="", default="", max_length=2048)),
                ("policy_uri", models.CharField(blank=True, db_default="", default="", max_length=2048)),
                ("tos_uri", models.CharField(blank=True, db_default="", default="", max_length=2048)),
                ("audiences", models.JSONField(blank=True, db_default=[], default=list)),
                ("allowed_origins", models.JSONField(blank=True, db_default=[], default=list)),
                ("require_par", models.BooleanField(db_default=False, default=False)),
                ("require_pkce", models.BooleanField(db_default=True, default=True)),
                ("require_nonce", models.BooleanField(db_default=True, default=True)),
                ("dpop_bound_access_tokens", models.BooleanField(db_default=False, default=False)),
                ("tls_client_certificate_bound_access_tokens", models.BooleanField(db_default=False, default=False)),
                (
                    "tls_client_auth_subject_dn",
                    models.CharField(blank=True, db_default="", default="", max_length=1024),
                ),
                ("tls_client_auth_san_dns", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("tls_client_auth_san_uri", models.CharField(blank=True, db_default="", default="", max_length=1024)),
                ("tls_client_auth_san_ip", models.CharField(blank=True, db_default="", default="", max_length=45)),
                ("tls_client_auth_san_email", models.CharField(blank=True, db_default="", default="", max_length=320)),
                ("tls_client_auth_authorities", models.TextField(blank=True, db_default="", default="")),
                ("refresh_token_rotation", models.BooleanField(blank=True, null=True)),
                ("security_profile", models.CharField(blank=True, db_default="", default="", max_length=32)),
                ("first_party", models.BooleanField(db_default=False, default=False)),
                ("direct_sign_in", models.BooleanField(db_default=True, default=True)),
                ("access_token_seconds", models.PositiveIntegerField(blank=True, null=True)),
                ("generation", models.PositiveIntegerField(db_default=1, default=1, editable=False)),
            ],
        ),
        migrations.AddField(
            model_name="client",
            name="revision",
            field=models.PositiveBigIntegerField(db_default=1, default=1, editable=False),
        ),
        migrations.CreateModel(
            name="TenantRevokedToken",
            fields=[
                ("jti", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("expires_at", models.DateTimeField()),
            ],
            options={"indexes": [models.Index(fields=["expires_at"], name="tenant_revoked_token_expiry")]},
        ),
    ]
