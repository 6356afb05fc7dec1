"""A mail server that can be away, refuse or hang, the users who cause mails, and the comparison of both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from email import message_from_bytes
from email.header import decode_header, make_header
from uuid import UUID, uuid4

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from bench.servers import free_port
from drill.load import Client

HOST = "127.0.0.1"
PASSWORD = "correct horse 9 battery"
# One mail in each language for each user, in this order.
LANGUAGES = ("en", "de", "fr")


class MailServer:
    """Keeps the languages of the mails to each address, in the order of their arrival."""

    def __init__(self) -> None:
        self.port = free_port()
        self.refuses = self.hangs = False
        self._lock = threading.Lock()
        self._languages: dict[str, list[str]] = {}
        self._controller: Controller | None = None

    @property
    def url(self) -> str:
        return f"smtp://{HOST}:{self.port}?tls=off"

    def start(self) -> None:
        self._controller = Controller(self, hostname=HOST, port=self.port)
        self._controller.start()

    def stop(self) -> None:
        if self._controller is not None:
            self._controller.stop()
        self._controller = None

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Take a mail, refuse it for now, or leave its sender without an answer (RFC 5321 section 4.2)."""
        if self.hangs:
            await asyncio.sleep(60)
        if self.refuses:
            return "554 5.7.1 Relaying denied"
        message = message_from_bytes(envelope.content or b"")
        subject = str(make_header(decode_header(str(message["Subject"]))))
        with self._lock:
            self._languages.setdefault(str(message["To"]), []).append(_language(subject))
        return "250 OK"

    def languages(self, address: str) -> list[str]:
        """Return the languages of the mails to an address. A mail that was sent twice counts once."""
        with self._lock:
            return list(dict.fromkeys(self._languages.get(address, ())))


def _language(subject: str) -> str:
    if "Bestätigen" in subject or "bestätigen" in subject:
        return "de"
    return "fr" if "vérifi" in subject else "en"


class Registrant(Client):
    """Registers one user after the other, who then requests the mail twice again, each time in another language."""

    pause = 0.5

    def __init__(self, port: int, tenant: UUID, client_id: UUID) -> None:
        super().__init__(port, tenant)
        self.client_id = client_id
        # What was acknowledged: the languages of the mails to each address, in their order.
        self.caused: dict[str, list[str]] = {}

    def take_turn(self, turn: int) -> None:
        email = f"{uuid4().hex}@example.com"
        body = {"tenant_id": str(self.tenant), "client_id": str(self.client_id), "email": email, "password": PASSWORD}
        self._request("/uflow/user/clients/register", body, LANGUAGES[0], email)
        for language in LANGUAGES[1:]:
            self._request("/uflow/user/email/resend", {"tenant_id": str(self.tenant), "email": email}, language, email)

    def _request(self, path: str, body: dict[str, str], language: str, email: str) -> None:
        self.headers = {**self.headers, "Accept-Language": language}
        status, _ = self.call("POST", path, body)
        if 200 <= status < 300:
            self.caused.setdefault(email, []).append(language)


def missing_mails(registrants: Sequence[Registrant], server: MailServer) -> int:
    """Return how many mails that were acknowledged have not arrived."""
    return sum(
        len(set(languages) - set(server.languages(email)))
        for registrant in registrants
        for email, languages in registrant.caused.items()
    )


def overtaken_mails(registrants: Sequence[Registrant], server: MailServer) -> int:
    """Return to how many addresses a mail arrived before an earlier one."""
    wrong = 0
    for registrant in registrants:
        for email, languages in registrant.caused.items():
            arrived = [language for language in server.languages(email) if language in languages]
            wrong += arrived != [language for language in languages if language in arrived]
    return wrong
