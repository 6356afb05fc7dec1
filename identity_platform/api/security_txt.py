"""/.well-known/security.txt: where to report vulnerabilities (RFC 9116)."""

from django.conf import settings
from django.core import checks
from django.http import HttpRequest, HttpResponse
from django.utils.timezone import now

from identity_platform.api.handlers import unknown_path
from identity_platform.environment import expiry_of


def security_txt(request: HttpRequest) -> HttpResponse:
    """Return the setting as plain text, or the 404 of an unknown path."""
    if settings.SECURITY_TXT is None:
        return unknown_path(request)
    return HttpResponse(settings.SECURITY_TXT, content_type="text/plain; charset=utf-8")


@checks.register(checks.Tags.security, deploy=True)
def is_not_expired(**options: object) -> list[checks.CheckMessage]:
    """Warn of a file that researchers must not rely on any more (RFC 9116 section 2.5.5)."""
    if settings.SECURITY_TXT is None or expiry_of(settings.SECURITY_TXT, "SECURITY_TXT") > now():
        return []
    return [checks.Warning("SECURITY_TXT has expired: renew its `Expires` line.", id="identity_platform.W001")]
