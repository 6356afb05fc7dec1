from datetime import datetime

from django.contrib.sessions.base_session import AbstractBaseSession
from django.db.models import Q


class BrowserSession(AbstractBaseSession):
    """The encrypted session data of one browser, stored under a hash of the session key.

    A reader of this table or of a backup can take over no session: it contains neither session keys nor the tickets of
    pending sign-ins in plain text.
    """

    class Meta(AbstractBaseSession.Meta):
        verbose_name = "browser session"
        verbose_name_plural = "browser sessions"

    def __str__(self) -> str:
        return self.session_key[:8]

    @classmethod
    def expired(cls, moment: datetime) -> Q:
        return Q(expire_date__lt=moment)
