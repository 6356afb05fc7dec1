"""A mail server on this machine that takes, refuses and delays mails, or is away."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.message import Message
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tenants.entering.context import in_tenant
from tests.world import TestTenant
from userflow.mail.models import TenantMail
from userflow.mail_delivery import background
from userflow.mail_delivery.sending import PAUSE

HOST = "127.0.0.1"


class MailServer:
    """The server, and the mails that it has taken."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port: int = probe.getsockname()[1]
        self.taken: list[Message] = []
        # What it says to a recipient or to a mail: a reply, or nothing to take it.
        self.reply_to: Callable[[str], str] = lambda address: ""
        # Whether it takes longer for a mail than its clients wait.
        self.silent = False
        self._controller: Controller | None = None

    def start(self) -> None:
        """Listen, always on the same port."""
        self._controller = Controller(self, hostname=HOST, port=self.port)
        self._controller.start()

    def stop(self) -> None:
        """Stop listening."""
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    async def handle_RCPT(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Any) -> str:
        """Answer to a recipient (RFC 5321 section 4.1.1.3)."""
        if reply := self.reply_to(address):
            return reply
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Take a mail (RFC 5321 section 4.1.1.4)."""
        if self.silent:
            await asyncio.sleep(30)
        self.taken.append(message_from_bytes(envelope.content))
        return "250 OK"

    def subjects(self, address: str) -> list[str]:
        """Return the subjects of the mails to an address, in their order."""
        return [str(message["Subject"]) for message in self.taken if message["To"] == address]


@pytest.fixture
def mail_server(settings: Any, tenant: TestTenant) -> Iterator[MailServer]:
    """The mail server that the platform uses; it does not listen yet. No mail of the tenant waits."""
    assert background.settle(30)
    with in_tenant(tenant.id):
        TenantMail.objects.all().delete()
    server = MailServer()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = HOST, server.port, 0.5
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    PAUSE.end()
    yield server
    server.stop()
    PAUSE.end()
