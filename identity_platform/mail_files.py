"""Mails as files that only their owner reads: they contain tokens."""

import os

from django.core.mail.backends import filebased


class EmailBackend(filebased.EmailBackend):
    """Django's backend that writes mails to files of EMAIL_FILE_PATH, with mode 0600 under any umask."""

    def open(self) -> bool:
        """Open the file of this connection unless it is open; return whether it was opened."""
        if self.stream is not None:
            return False
        descriptor = os.open(self._get_filename(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.stream = os.fdopen(descriptor, "ab")
        return True
