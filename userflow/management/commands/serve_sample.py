from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from tenants.management.terminal import NOT_TRIED
from tenants.models import Tenant
from userflow.management import demo_application, demo_exports


class Command(BaseCommand):
    help = (
        "Serve the sample application of examples/django-authlib for the demo tenant, as the server does in embedded mode. "
        "Example: serve_sample"
    )

    def handle(self, *args: object, **options: object) -> None:
        tenant = Tenant.objects.filter(slug=demo_exports.SLUG).first() if settings.EMBEDDED else None
        if tenant is None or not demo_application.is_served(tenant):
            raise CommandError(
                "The sample application exists only in embedded mode, with the demo tenant and DEMO_PORT.",
                returncode=NOT_TRIED,
            )
        demo_application.serve(tenant)
