"""The demo page: one template; everything else happens in the browser, through the public API."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from identity_platform.api.handlers import read_only
from userflow.accounts.models import Client

DEMO_TENANT = "demo"
# Scripts, styles and calls of this origin only; nothing inline, so markup in a user's name stays text.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


@read_only
def page(request: HttpRequest) -> HttpResponse:
    """The page for the demo tenant; without that tenant it says how to get it."""
    client = Client.objects.select_related("tenant").filter(tenant__slug=DEMO_TENANT, is_default=True).first()
    facts = {
        "client": client,
        "rp_id": settings.WEBAUTHN_RP_ID,
        "origin": settings.WEBAUTHN_ORIGINS[0] if settings.WEBAUTHN_ORIGINS else settings.BASE_URL,
        "outbox": settings.OUTBOX.relative_to(settings.VAR.parent),
    }
    response = HttpResponse(render_to_string("demo/page.html", facts))
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Cache-Control"] = "no-store"
    return response
