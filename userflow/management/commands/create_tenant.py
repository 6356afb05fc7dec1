import json
import os
from argparse import ArgumentParser
from collections.abc import Sequence

from django.core.management.base import CommandError
from rest_framework.serializers import Field, ValidationError

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.management.terminal import NOT_TRIED
from userflow.admins.serializers import AdminUserIn
from userflow.tenants.actions import NewTenant, generated_password, open_tenant
from userflow.tenants.serializers import TenantIn


class Command(terminal.OperatorCommand):
    help = (
        "Create a tenant with its own database. Run it again with the same --slug to finish an interrupted creation. "
        "Example: create_tenant 'Acme Ltd' --slug acme --admin-username ann --admin-email ann@acme.example --json"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The name of the tenant.")
        parser.add_argument("--slug", help="Short name for commands and addresses. Default: derived from the name.")
        parser.add_argument(
            "--admin-username",
            help="Also create an admin of the tenant. The password comes from TENANT_ADMIN_PASSWORD, or is generated and "
            "printed.",
        )
        parser.add_argument("--admin-email", help="E-mail address of the admin; required with --admin-username.")
        parser.add_argument("--server", help="Database server. Default: the one with the most free capacity.")
        parser.add_argument("--region", help="Region that its database does not leave (the setting `region`).")
        parser.add_argument(
            "--labels",
            type=terminal.labels,
            default=[],
            metavar="LABEL,LABEL",
            help="Only on a database server that has all these labels.",
        )
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of a table.")

    def handle(
        self,
        *args: object,
        name: str,
        slug: str | None = None,
        admin_username: str | None = None,
        admin_email: str | None = None,
        server: str | None = None,
        region: str | None = None,
        labels: Sequence[str] = (),
        **options: object,
    ) -> None:
        if bool(admin_username) != bool(admin_email):
            raise CommandError("Send --admin-username and --admin-email together.", returncode=NOT_TRIED)
        name = _validated("name", TenantIn().fields["name"], name)
        admin = password = None
        if admin_username and admin_email:
            password = os.environ.get("TENANT_ADMIN_PASSWORD") or generated_password()
            admin = {
                "username": _validated("--admin-username", AdminUserIn().fields["username"], admin_username),
                "email": _validated("--admin-email", AdminUserIn().fields["email"], admin_email),
                "password": password,
            }
        try:
            tenant_settings = {"region": region} if region else None
            created = open_tenant(
                name=name, slug=slug, tenant_settings=tenant_settings, server=server, server_labels=labels, admin=admin
            )
        except ApiError as error:
            fields = [f"{name}: {' '.join(texts)}" for name, texts in error.messages.items()]
            said = " ".join(fields) or error.text
            # An invalid argument creates nothing; after other errors, running the command again finishes the creation.
            raise CommandError(said, returncode=NOT_TRIED if error.status < 500 else 1) from error
        result = _facts(created, password)
        if options["json"]:
            self.stdout.write(json.dumps(result))
            return
        for name, value in result.items():
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            self.stdout.write(f"{name:10} {shown or '-'}")


def _facts(created: NewTenant, password: str | None) -> dict[str, object]:
    tenant, admin = created.tenant, created.admin
    database = tenant.database
    return {
        "tenant_id": str(tenant.pk),
        "slug": tenant.slug,
        "client_id": str(created.client_id),
        "database": {"host": database.server.host, "name": database.name, "status": str(database.status)},
        "admin": {"id": str(admin.pk), "username": admin.username, "password": password} if admin else None,
    }


def _validated(argument: str, field: "Field[object, object, object, object]", text: str) -> str:
    """Validate the argument with the API's field. Raises CommandError."""
    try:
        return str(field.run_validation(text))
    except ValidationError as problem:
        raise CommandError(f"{argument}: {' '.join(map(str, problem.detail))}", returncode=NOT_TRIED) from None
