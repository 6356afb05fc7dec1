from tenants.lifecycle.provisioning import resume_tenant
from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal


class Command(terminal.TenantCommand):
    help = (
        "Resume a suspended tenant, from the next request on. "
        "Exit code 2: unknown tenant, or its state does not allow it. Example: resume_tenant acme"
    )

    def handle(self, *, slug: str, **_: object) -> None:
        resume_tenant(tenant_id=tenant_named(slug).pk)
        self.stdout.write(f"{slug} is active again.")
