"""`create_tenant`: a tenant with its database, its default client and, if wanted, its first admin."""

import json
import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rest_framework.serializers import Field, ValidationError

from identity_platform.api.errors import ApiError
from tenants.management.terminal import NOT_TRIED
from userflow.admins.serializers import AdminUserIn
from userflow.tenants.actions import generated_password, open_tenant
from userflow.tenants.serializers import TenantIn


class Command(BaseCommand):
    help = (
        "Make a tenant with a database of its own. Run it again with the same --slug to finish one that was interrupted. "
        "Example: create_tenant 'Acme Ltd' --slug acme --admin-username ann --admin-email ann@acme.example --json"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The customer's name.")
        parser.add_argument("--slug", help="Short name for commands and addresses; made from the name if left out.")
        parser.add_argument(
            "--admin-username",
            help="Also make an admin of the tenant. The password is TENANT_ADMIN_PASSWORD of the environment, or made and "
            "printed.",
        )
        parser.add_argument("--admin-email", help="The admin's address; goes with --admin-username.")
        parser.add_argument("--server", help="Database server; the one with most room if left out.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of a table.")

    def handle(self, *args: Any, **options: Any) -> None:
        if bool(options["admin_username"]) != bool(options["admin_email"]):
            raise CommandError("--admin-username and --admin-email go together.", returncode=NOT_TRIED)
        name = _taken("name", TenantIn().fields["name"], options["name"])
        admin = password = None
        if options["admin_username"]:
            password = os.environ.get("TENANT_ADMIN_PASSWORD") or generated_password()
            admin = {
                "username": _taken("--admin-username", AdminUserIn().fields["username"], options["admin_username"]),
                "email": _taken("--admin-email", AdminUserIn().fields["email"], options["admin_email"]),
                "password": password,
            }
        try:
            made = open_tenant(name=name, slug=options["slug"], server=options["server"], admin=admin)
        except ApiError as error:
            members = [f"{name}: {_told(about)}" for name, about in (error.details or {}).items()]
            said = " ".join(members) or error.text
            # A wrong argument leaves nothing behind; anything else may be finished by running the command again.
            raise CommandError(said, returncode=NOT_TRIED if error.status < 500 else 1) from error
        database = made.tenant.database
        answer = {
            "tenant_id": str(made.tenant.pk),
            "slug": made.tenant.slug,
            "client_id": str(made.client_id),
            "database": {"host": database.server.host, "name": database.name, "status": str(database.status)},
            "admin": (
                {"id": str(made.admin.pk), "username": made.admin.username, "password": password}
                if made.admin
                else None
            ),
        }
        if options["json"]:
            self.stdout.write(json.dumps(answer))
            return
        for name, value in answer.items():
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            self.stdout.write(f"{name:10} {shown or '-'}")


def _taken(argument: str, field: "Field[Any, Any, Any, Any]", text: str) -> Any:
    """The argument as the field of the API takes it; CommandError for what the API would reject."""
    try:
        return field.run_validation(text)
    except ValidationError as problem:
        raise CommandError(f"{argument}: {' '.join(map(str, problem.detail))}", returncode=NOT_TRIED) from None


def _told(about: object) -> str:
    return " ".join(map(str, about)) if isinstance(about, list) else str(about)
