"""Webhook endpoints, the outbox of messages to them, and the permissions to manage them."""

import uuid
from typing import Any

import django.db.models.functions.datetime
from django.db import migrations, models

from userflow.accounts.permissions_catalogue import BUILT_IN_ROLES


def grant(apps: Any, schema_editor: Any) -> None:
    role = apps.get_model("userflow", "AdminRole")
    for name, permissions in BUILT_IN_ROLES.items():
        role.objects.using(schema_editor.connection.alias).update_or_create(
            name=name, defaults={"permissions": list(permissions)}
        )


class Migration(migrations.Migration):
    dependencies = [
        ("userflow", "0004_client_generation_and_revoked_tokens"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebhookEndpoint",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("url", models.CharField(max_length=2048)),
                ("description", models.CharField(blank=True, default="", max_length=255)),
                ("events", models.JSONField(default=list)),
                ("enabled", models.BooleanField(default=True)),
                ("disabled_reason", models.CharField(blank=True, default="", max_length=16)),
                ("secret_sealed", models.BinaryField()),
                ("previous_secret_sealed", models.BinaryField(null=True)),
                ("previous_secret_until", models.DateTimeField(editable=False, null=True)),
                ("lease", models.UUIDField(editable=False, null=True)),
                ("leased_until", models.DateTimeField(editable=False, null=True)),
                ("failing_since", models.DateTimeField(editable=False, null=True)),
                ("last_delivered_at", models.DateTimeField(editable=False, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="WebhookMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("endpoint_id", models.UUIDField()),
                ("message_id", models.CharField(max_length=40)),
                ("event", models.CharField(max_length=64)),
                ("subject_id", models.UUIDField(null=True)),
                ("body", models.TextField()),
                ("status", models.CharField(db_default="pending", default="pending", max_length=16)),
                ("attempts", models.PositiveIntegerField(db_default=0, default=0)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("queued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("next_attempt_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("settled_at", models.DateTimeField(null=True)),
                ("last_status", models.PositiveSmallIntegerField(null=True)),
                ("last_error", models.CharField(blank=True, db_default="", default="", max_length=64)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("status", "pending")),
                        fields=["endpoint_id", "id"],
                        name="webhook_message_queue",
                    ),
                    models.Index(fields=["endpoint_id", "status", "-id"], name="webhook_message_newest"),
                    models.Index(fields=["settled_at"], name="webhook_message_settled"),
                    models.Index(fields=["subject_id"], name="webhook_message_subject"),
                ],
            },
        ),
        migrations.RunPython(grant, migrations.RunPython.noop, hints={"tenant": False}),
    ]
