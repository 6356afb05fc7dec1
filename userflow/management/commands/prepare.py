"""`prepare`: set up an empty database server for the first request; safe to repeat."""

import os
from argparse import ArgumentParser

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from identity_platform.crypto import SealBroken
from identity_platform.serving.workers import FENCED
from tenants import keys
from tenants.copies.databases import ensure_template
from tenants.database_servers import fences, queries
from tenants.database_servers.servers import direct_to_global
from tenants.errors import DataKeyLocked, InstallationFenced
from tenants.jobs import fleet
from tenants.lifecycle import warm_pool
from tenants.lifecycle.capacity import main_server
from tenants.models import Tenant
from tenants.states import State
from userflow.accounts.models import AdminUser
from userflow.admins.actions import create_admin_user
from userflow.management import demo_application, demo_exports
from userflow.sessions import signing
from userflow.tenants.actions import generated_password, open_tenant

PREPARE_LOCK = 7_215_005


class Command(BaseCommand):
    help = (
        "Migrate the global database, create the template database and the warm pool. In embedded mode also migrate "
        "the tenants, create the first operator and a demo tenant, and print their credentials once. Example: prepare"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-demo", action="store_true", help="Create no operator and no demo tenant.")

    def handle(self, *args: object, **options: object) -> None:
        # Two hosts of one platform may start at the same time; the second finds everything done. A session lock needs a
        # direct connection: a pooler may switch connections between statements.
        with direct_to_global() as raw:
            queries.lock_session(raw, PREPARE_LOCK)
            self._prepare(demo=settings.EMBEDDED and not options["no_demo"])

    def _prepare(self, *, demo: bool) -> None:
        if self._behind():
            call_command("migrate", database="default", verbosity=0, interactive=False)
        try:
            keys.platform_key()
            signing.signer()
        except (SealBroken, DataKeyLocked) as problem:
            raise CommandError(
                "ENCRYPTION_KEYS does not contain the key that sealed this database's secrets. Add that key to the list."
            ) from problem
        server = main_server()
        # Its own database is migrated, so that it can be adopted. Nothing is done on the servers.
        try:
            fences.require()
        except InstallationFenced as fenced:
            raise CommandError(fenced.text, returncode=FENCED) from fenced
        if server.detached:
            return
        ensure_template(server)
        if settings.EMBEDDED:
            self._upgrade_tenants()
        if demo:
            self._first_steps()
        warm_pool.refill(server, settings.TENANT_WARM_POOL)

    def _behind(self) -> bool:
        executor = MigrationExecutor(connection)
        return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))

    def _upgrade_tenants(self) -> None:
        """Migrate tenants after a `git pull`. In production an operator runs `migrate_tenants` and checks its report."""
        for failure in fleet.migrate_tenants().failed:
            self.stderr.write(f"{failure.slug} keeps its old schema, see `migrate_tenants`: {failure.reason}")

    def _first_steps(self) -> None:
        """Create the operator and the demo tenant with its sample application, and print their credentials."""
        operator = not AdminUser.objects.filter(tenant=None).exists()
        if operator:
            password = os.environ.get("DJANGO_SUPERUSER_PASSWORD") or generated_password()
            create_admin_user(tenant_id=None, username="operator", email="operator@example.com", password=password)
            demo_exports.remember("operator", password)
        tenant = not Tenant.objects.filter(slug=demo_exports.SLUG).exists()
        if tenant:
            password = os.environ.get("TENANT_ADMIN_PASSWORD") or generated_password()
            admin = {"username": "demo-admin", "email": "admin@demo.example.com", "password": password}
            open_tenant(name="Demo", slug=demo_exports.SLUG, admin=admin)
            demo_exports.remember("demo-admin", password)
        demo = Tenant.objects.filter(slug=demo_exports.SLUG, database__status=State.ACTIVE).first()
        if demo is not None and settings.DEMO_PORT:
            demo_application.create(demo)
        if operator or tenant:
            self.stdout.write("\n".join(demo_exports.lines()) + "\n")
