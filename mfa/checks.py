"""System checks of the settings of second factors."""

from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.utils.module_loading import import_string


@register()
def sms_sender_is_there(**_: object) -> list[CheckMessage]:
    """Import SMS_BACKEND now: otherwise the first message to be sent would show that the path is wrong."""
    if not settings.SMS_BACKEND:
        return []
    try:
        import_string(settings.SMS_BACKEND)
    except ImportError as problem:
        message = f"SMS_BACKEND names no sender: {problem}."
        return [Error(message, hint="Set it to a dotted path such as mfa.sms.gateway.HttpGateway.", id="mfa.E001")]
    return []


@register(Tags.security, deploy=True)
def console_accepts_its_own_origin(**_: object) -> list[CheckMessage]:
    """Warn if CONSOLE_ORIGINS lacks the console's origin: browsers and the server would accept no passkey there."""
    base = urlsplit(settings.BASE_URL)
    origin = f"{base.scheme}://{base.netloc}"
    if not settings.CONSOLE_RP_ID or base.hostname == "localhost" or origin in settings.CONSOLE_ORIGINS:
        return []
    message = f"Admin users cannot use passkeys in the console at {origin}: CONSOLE_ORIGINS does not list it."
    hint = "Set CONSOLE_RP_ID and CONSOLE_ORIGINS to the host and origin of the console."
    return [Warning(message, hint=hint, id="mfa.W001")]
