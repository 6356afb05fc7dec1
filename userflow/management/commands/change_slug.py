from argparse import ArgumentParser

from tenants.addresses.issuers import issuer_of
from tenants.entering.lookup import find
from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal
from userflow.tenants.actions import applications_of, change_slug


class Command(terminal.TenantCommand):
    help = (
        "Give a tenant another slug, and with it another issuer: its applications can no longer sign users in until each is "
        "configured with the new one. The former slug stays reserved to the tenant; its pages redirect and its keys stay "
        "published. Example: change_slug acme acme-group"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("new_slug", help="The new slug: a-z, 0-9 and dashes.")
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(self, *, slug: str, new_slug: str, yes: bool, **_: object) -> None:
        tenant = tenant_named(slug)
        for name, client_id in applications_of(tenant_id=tenant.pk):
            self.stdout.write(f"{name} ({client_id}) is configured with {issuer_of(find(tenant.pk))}.")
        terminal.confirm(self.stdout, f"The issuer of {tenant.slug} changes.", tenant.slug, yes=yes)
        change_slug(tenant_id=tenant.pk, slug=new_slug, confirm=tenant.slug)
        self.stdout.write(f"The issuer is {issuer_of(find(tenant.pk))} now.")
