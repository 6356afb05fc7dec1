from argparse import ArgumentParser

from django.core.management.base import CommandError

from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal
from tenants.management.terminal import NOT_TRIED
from userflow.sessions import signing


class Command(terminal.OperatorCommand):
    help = (
        "Create the next signing key. It is published in the JWKS at once and signs ten minutes later, so that verifiers "
        "that cache the JWKS know it in time. Older keys verify until their last tokens have expired. No user is "
        "signed out. Example: rotate_signing_keys --status, or rotate_signing_keys --tenant acme"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="Act on a tenant's keys. Default: the platform's.")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--at-once", action="store_true", help="Sign with the new key immediately.")
        what.add_argument("--status", action="store_true", help="Show the valid keys and exit.")
        what.add_argument(
            "--withdraw",
            metavar="KID",
            help="Reject this key's tokens within seconds, after its private key has leaked. Users with such tokens "
            "must sign in again.",
        )

    def handle(
        self,
        *args: object,
        tenant: str | None = None,
        at_once: bool = False,
        status: bool = False,
        withdraw: str | None = None,
        **options: object,
    ) -> None:
        tenant_id = tenant_named(tenant).pk if tenant else None
        if withdraw:
            if not signing.withdraw_signing_key(tenant_id, kid=withdraw):
                raise CommandError(
                    "No valid key has this id. List the keys with rotate_signing_keys --status.", returncode=NOT_TRIED
                )
            self.stdout.write(f"{withdraw} is withdrawn.")
        elif not status:
            for key in signing.rotate_signing_keys(tenant_id, at_once=at_once):
                self.stdout.write(f"{key.kid} signs from {key.signs_from:%Y-%m-%d %H:%M:%S} UTC.")
        for known in signing.signing_key_status(tenant_id):
            until = f"verifies until {known.verifies_until:%Y-%m-%d %H:%M} UTC" if known.verifies_until else ""
            since = f"signs from {known.signs_from:%Y-%m-%d %H:%M} UTC"
            self.stdout.write(f"{known.kid}  {known.algorithm}  {known.state:9}  {since}  {until}".rstrip())
