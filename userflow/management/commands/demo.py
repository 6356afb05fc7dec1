from argparse import ArgumentParser

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from tenants.management.terminal import NOT_TRIED
from userflow.management import demo_application, demo_exports


class Command(BaseCommand):
    help = (
        "Print the export lines of the first start again: the demo tenant, its admin and the operator, and where to sign "
        "in as a user. Embedded mode only. Example: demo"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--sign-in", action="store_true", help="Print only where to sign in as a user, if anywhere."
        )

    def handle(self, *args: object, **options: object) -> None:
        if not settings.EMBEDDED:
            raise CommandError("The demo exists only in embedded mode, but DATABASE_URL is set.", returncode=NOT_TRIED)
        exports = () if options["sign_in"] else demo_exports.lines()
        if lines := [*exports, *demo_application.invitation()]:
            self.stdout.write("\n".join(lines))
