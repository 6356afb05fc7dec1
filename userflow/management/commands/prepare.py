"""`prepare`: everything between an empty database server and the first request; harmless when it is done."""

import os
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from identity_platform.crypto import SealBroken
from tenants import fleet, keys, warm
from tenants.capacity import main_server
from tenants.databases import ensure_template
from tenants.errors import DataKeyLocked
from tenants.models import Tenant
from tenants.servers import direct_to_global
from userflow.admins.actions import create_admin_user
from userflow.admins.models import AdminUser
from userflow.tenants.actions import generated_password, open_tenant
from userflow.tokens import signing

DEMO = "demo"
PREPARE_LOCK = 7_215_005


class Command(BaseCommand):
    help = (
        "Migrate the global database, make the template database and the warm pool; in embedded mode also migrate "
        "the tenants, make the first operator and a demo tenant, and print once what a newcomer needs. Example: prepare"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-demo", action="store_true", help="No operator and no demo tenant.")

    def handle(self, *args: Any, **options: Any) -> None:
        # Two hosts of one platform may start at the same moment; the second finds everything done. The lock lives and
        # dies with its connection, which is direct: behind a pooler it would belong to nobody.
        with direct_to_global() as raw:
            raw.execute("SELECT pg_advisory_lock(%s)", [PREPARE_LOCK])
            self._prepare(demo=settings.EMBEDDED and not options["no_demo"])

    def _prepare(self, *, demo: bool) -> None:
        if self._behind():
            call_command("migrate", database="default", verbosity=0, interactive=False)
        try:
            keys.platform_key()
            signing.key_set()
        except (SealBroken, DataKeyLocked) as problem:
            raise CommandError(
                "ENCRYPTION_KEYS does not hold the key that sealed this database's secrets: add that key to the list."
            ) from problem
        server = main_server()
        ensure_template(server)
        if settings.EMBEDDED:
            self._upgrade_tenants()
        if demo:
            self._first_steps()
        warm.refill(server, settings.TENANT_WARM_POOL)

    def _behind(self) -> bool:
        executor = MigrationExecutor(connection)
        return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))

    def _upgrade_tenants(self) -> None:
        """After a `git pull`; in production an operator does it, and looks at the report before going on."""
        for failure in fleet.migrate_tenants().failed:
            self.stderr.write(f"{failure.slug} keeps its old schema, see `migrate_tenants`: {failure.reason}")

    def _first_steps(self) -> None:
        if not AdminUser.objects.filter(tenant=None).exists():
            password = os.environ.get("DJANGO_SUPERUSER_PASSWORD") or generated_password()
            create_admin_user(tenant_id=None, username="operator", email="operator@example.com", password=password)
            self._say("The operator of this platform", OPERATOR_USERNAME="operator", OPERATOR_PASSWORD=password)
        if not Tenant.objects.filter(slug=DEMO).exists():
            # Only now: it loads the web server.
            from identity_platform.server import address_of

            password = os.environ.get("TENANT_ADMIN_PASSWORD") or generated_password()
            admin = {"username": "demo-admin", "email": "admin@demo.example.com", "password": password}
            made = open_tenant(name="Demo", slug=DEMO, admin=admin)
            self._say(
                "A demo tenant with its client and its admin",
                BASE_URL=address_of(settings.HOST, settings.PORT),
                TENANT_ID=made.tenant.pk,
                CLIENT_ID=made.client_id,
                ADMIN_USERNAME="demo-admin",
                ADMIN_PASSWORD=password,
            )

    def _say(self, what: str, **facts: object) -> None:
        """As lines that a shell takes: the README's curl lines use these names."""
        self.stdout.write(f"# {what}. Shown this once; paste it into the shell where you try the README:")
        for name, value in facts.items():
            self.stdout.write(f"export {name}={value}")
        self.stdout.write("")
