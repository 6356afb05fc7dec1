"""System checks: what must hold before the first request."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
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
