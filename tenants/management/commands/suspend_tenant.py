from argparse import ArgumentParser

from tenants.lifecycle.provisioning import suspend_tenant
from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal


class Command(terminal.TenantCommand):
    help = (
        "Suspend a tenant: from the next request on its users and admins cannot sign in or call the API. Its data is kept and "
        "operators can read it. Exit code 2: unknown tenant, or its state does not allow it. "
        'Example: suspend_tenant acme --reason "Contract ended"'
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--reason",
            default="",
            help="Recorded in the audit log, which the admins of the tenant can read. No personal data.",
        )

    def handle(self, *, slug: str, reason: str, **_: object) -> None:
        suspend_tenant(tenant_id=tenant_named(slug).pk, reason=reason)
        self.stdout.write(f"{slug} is suspended.")
