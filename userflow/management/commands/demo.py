from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from tenants.management.terminal import NOT_TRIED
from userflow.management import demo_exports


class Command(BaseCommand):
    help = (
        "Print the export lines of the first start again: the demo tenant, its admin and the operator. Embedded mode "
        "only. Example: demo"
    )

    def handle(self, *args: object, **options: object) -> None:
        if not settings.EMBEDDED:
            raise CommandError("The demo exists only in embedded mode, but DATABASE_URL is set.", returncode=NOT_TRIED)
        self.stdout.write("\n".join(demo_exports.lines()))
