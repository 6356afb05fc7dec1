"""An admin user's address is reserved once it is verified, and a change of address can be undone.

The addresses of the admin users that are there count as verified: until now each was one user's.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.utils.timezone import now


def _undo(model: str, user: str, indexes: list[models.Index]) -> migrations.CreateModel:
    return migrations.CreateModel(
        name=model,
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("email", models.CharField(max_length=254)),
            ("email_key", models.CharField(max_length=254)),
            ("token_digest", models.BinaryField(unique=True)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("expires_at", models.DateTimeField()),
            (
                "user",
                models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="email_undos", to=user),
            ),
        ],
        options={"indexes": indexes},
    )


class Migration(migrations.Migration):
    dependencies = [("userflow", "0015_export_hashes")]

    operations = [
        migrations.AddField(
            "adminuser",
            "email_verified_at",
            models.DateTimeField(default=now, editable=False, null=True),
            preserve_default=False,
        ),
        migrations.AlterField("adminuser", "email_key", models.CharField(editable=False, max_length=254)),
        migrations.AddIndex("adminuser", models.Index(fields=["email_key"], name="admin_email")),
        migrations.AddConstraint(
            "adminuser",
            models.UniqueConstraint(
                condition=models.Q(("email_verified_at__isnull", False)),
                fields=("email_key",),
                name="admin_email_unique",
            ),
        ),
        migrations.AddConstraint(
            "adminuser",
            models.UniqueConstraint(
                condition=models.Q(("email_verified_at__isnull", True)),
                fields=("tenant", "email_key"),
                name="admin_email_unverified_unique",
                nulls_distinct=False,
            ),
        ),
        migrations.CreateModel(
            name="AdminEmailProof",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="email_proof",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("email", models.CharField(max_length=254)),
                ("email_key", models.CharField(max_length=254)),
                ("token_digest", models.BinaryField(unique=True)),
                ("session_id", models.UUIDField(null=True)),
                ("expires_at", models.DateTimeField()),
            ],
            options={"indexes": [models.Index(fields=["expires_at"], name="admin_email_proof_expiry")]},
        ),
        _undo(
            "AdminEmailUndo",
            settings.AUTH_USER_MODEL,
            [models.Index(fields=["expires_at"], name="admin_email_undo_expiry")],
        ),
        _undo(
            "EndUserEmailUndo",
            "userflow.enduser",
            [
                models.Index(fields=["expires_at"], name="end_user_email_undo_expiry"),
                models.Index(fields=["email_key"], name="end_user_email_undo_key"),
            ],
        ),
    ]
