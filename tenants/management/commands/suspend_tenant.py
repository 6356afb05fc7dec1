from tenants.management import terminal
from tenants.provisioning import suspend_tenant
from tenants.queries import tenant_named


class Command(terminal.TenantCommand):
    help = (
        "Suspend a tenant: from the next request on its users and admins cannot sign in or call the API. Its data is kept and "
        "operators can read it. Exit code 2: unknown tenant, or its state does not allow it. Example: suspend_tenant acme"
    )

    def handle(self, *, slug: str, **_: object) -> None:
        suspend_tenant(tenant_id=tenant_named(slug).pk)
        self.stdout.write(f"{slug} is suspended.")
