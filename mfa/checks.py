"""System checks: what must hold before the first request."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.utils.module_loading import import_string


@register()
def sms_sender_is_there(**_: Any) -> list[CheckMessage]:
    """The path in SMS_BACKEND is followed when the first message is sent: too late to learn that it leads nowhere."""
    if not settings.SMS_BACKEND:
        return []
    try:
        import_string(settings.SMS_BACKEND)
    except ImportError as problem:
        says = f"SMS_BACKEND names no sender: {problem}."
        return [Error(says, hint="Set it to a dotted path such as mfa.sms.gateway.HttpGateway.", id="mfa.E001")]
    return []


@register(Tags.security, deploy=True)
def console_accepts_its_own_origin(**_: Any) -> list[CheckMessage]:
    """Browsers and the server accept passkeys of the console on the listed origins only."""
    place = urlsplit(settings.BASE_URL)
    origin = f"{place.scheme}://{place.netloc}"
    if not settings.CONSOLE_RP_ID or place.hostname == "localhost" or origin in settings.CONSOLE_ORIGINS:
        return []
    says = f"Admin users cannot use passkeys in the console at {origin}: CONSOLE_ORIGINS does not list it."
    hint = "Set CONSOLE_RP_ID and CONSOLE_ORIGINS to the host and origin of the console."
    return [Warning(says, hint=hint, id="mfa.W001")]
