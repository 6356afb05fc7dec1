"""The default client is the tenant's own: its users are not asked for consent."""

from typing import Any

from django.db import migrations


def mark(apps: Any, schema_editor: Any) -> None:
    clients = apps.get_model("userflow", "Client").objects.using(schema_editor.connection.alias)
    clients.filter(is_default=True).update(first_party=True)


class Migration(migrations.Migration):
    dependencies = [("userflow", "0019_openid_clients_and_sessions")]

    operations = [migrations.RunPython(mark, migrations.RunPython.noop, hints={"tenant": False})]
