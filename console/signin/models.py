"""Sessions of the console's browsers."""

from datetime import datetime

from django.contrib.sessions.base_session import AbstractBaseSession
from django.db.models import Q


class BrowserSession(AbstractBaseSession):
    """What the console keeps of one browser, under a hash of the name that the browser holds, and sealed.

    Whoever reads this table, or a backup of it, can be nobody by it: neither the names nor the tickets of sign-ins that
    wait for their second step stand in it.
    """

    class Meta(AbstractBaseSession.Meta):
        verbose_name = "browser session"
        verbose_name_plural = "browser sessions"

    def __str__(self) -> str:
        return self.session_key[:8]

    @classmethod
    def expired(cls, moment: datetime) -> Q:
        """Expired."""
        return Q(expire_date__lt=moment)
