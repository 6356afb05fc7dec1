"""Messages of console pages: in a cookie, or in the session when they are too long for one."""

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.messages.storage.session import SessionStorage


class PrefixedCookieStorage(CookieStorage):
    """Messages in a cookie whose name prefix only this host can set in production."""

    cookie_name = f"{settings.COOKIE_PREFIX}messages"


class MessageStorage(FallbackStorage):
    storage_classes = (PrefixedCookieStorage, SessionStorage)
