"""django-tenants in an environment of its own: makes schema tenants with the platform's tenant tables when asked.

Reads numbers from standard input, makes so many tenants for each, and answers their times in ms as a JSON list. The
tables are those of one of the platform's tenant databases, read by Django's inspectdb and written as migrations by
makemigrations: one migration for all tables and one for the indexes, less work than the platform's own chain.
"""

import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path

import psycopg
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

FOLDER = Path(os.environ["PEER_FOLDER"])
PEOPLE = FOLDER / "people"
sys.path[:0] = [str(FOLDER), str(Path(__file__).resolve().parent)]

SHARED = ["django_tenants", "customers", "django.contrib.contenttypes"]
# Indexes that Django does not make by itself from the inspected tables (it does for keys and unique columns).
INDEXES = """
SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE '%\\_like' AND i.indrelid <> 'django_migrations'::regclass
AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u'))
AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = i.indrelid AND k.contype = 'f'
  AND k.conkey[1] = i.indkey[0] AND i.indnkeyatts = 1)
ORDER BY c.relname
"""


def _database(url, engine):
    parts = conninfo_to_dict(url)
    return {
        "ENGINE": engine,
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
        "CONN_MAX_AGE": None,
    }


def _configure(apps):
    settings.configure(
        SECRET_KEY="of a peer that keeps nothing secret",
        DATABASES={
            "default": _database(os.environ["PEER_DATABASE_URL"], "django_tenants.postgresql_backend"),
            "source": _database(os.environ["PEER_SOURCE_URL"], "django.db.backends.postgresql"),
        },
        DATABASE_ROUTERS=["django_tenants.routers.TenantSyncRouter"],
        SHARED_APPS=SHARED,
        TENANT_APPS=apps,
        INSTALLED_APPS=[*SHARED, *(app for app in apps if app not in SHARED)],
        TENANT_MODEL="customers.Client",
        TENANT_DOMAIN_MODEL="customers.Domain",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )
    import django

    django.setup()


def read_tables():
    """Write the app `people` with a model for each table of a tenant database of the platform."""
    from django.core.management import call_command

    with psycopg.connect(os.environ["PEER_SOURCE_URL"]) as source:
        tables = [
            name
            for (name,) in source.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'django_migrations'"
            )
        ]
        indexes = [definition.replace(" ON public.", " ON ") for (definition,) in source.execute(INDEXES)]
    models = io.StringIO()
    call_command("inspectdb", *tables, database="source", stdout=models)
    (PEOPLE / "migrations").mkdir(parents=True, exist_ok=True)
    (PEOPLE / "__init__.py").touch()
    (PEOPLE / "migrations" / "__init__.py").touch()
    (PEOPLE / "models.py").write_text(models.getvalue().replace("managed = False", "managed = True"))
    (PEOPLE / "indexes.json").write_text(json.dumps(indexes))
    return len(tables), len(indexes)


def write_migrations():
    """One migration with the tables, one with the indexes; and the shared tables in the database."""
    from django.core.management import call_command

    call_command("makemigrations", "people", name="tables", verbosity=0)
    indexes = json.loads((PEOPLE / "indexes.json").read_text())
    (PEOPLE / "migrations" / "0002_indexes.py").write_text(
        "from django.db import migrations\n\n\nclass Migration(migrations.Migration):\n"
        "    dependencies = [('people', '0001_tables')]\n"
        f"    operations = [migrations.RunSQL({indexes!r})]\n"
    )
    call_command("migrate_schemas", shared=True, verbosity=0)


def make(numbers):
    """Make as many tenants as each number says; times on standard output."""
    from customers.models import Client
    from django.db import connection

    answers = os.fdopen(os.dup(1), "w")
    made = Client.objects.count()
    connection.ensure_connection()
    print("ready", file=answers, flush=True)
    for number in numbers:
        times = []
        for _ in range(int(number)):
            made += 1
            began = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                Client(schema_name=f"tenant{made}", name=f"Tenant {made}").save(verbosity=0)
            times.append((time.perf_counter() - began) * 1000)
        print(json.dumps(times), file=answers, flush=True)


def main():
    if sys.argv[1] == "read":
        _configure(["django.contrib.contenttypes"])
        print(json.dumps(read_tables()))
        return
    _configure(["people"])
    if sys.argv[1] == "migrate":
        write_migrations()
        return
    make(line for line in sys.stdin if line.strip())


if __name__ == "__main__":
    main()
