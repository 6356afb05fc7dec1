"""Senders of messages, chosen by the dotted path in SMS_BACKEND, as Django chooses its e-mail back ends.

A message costs money, and users should not get it twice. So a sender retries only if the first try certainly sent nothing,
or if an idempotency key prevents a duplicate.
"""

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Any, Final

import requests
from django.conf import settings
from django.utils.module_loading import import_string
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from identity_platform.authorities import TrustingAdapter
from identity_platform.folders import make_folder

# All tries together; the caller waits for them (503 within 3 s if a dependency is unavailable).
DEADLINE_SECONDS: Final = 2.5
CONNECT_SECONDS: Final = 1.0
TRIES: Final = 3


class NotSent(Exception):
    """The message was not handed over; `reason` is for the log and holds no number and no text."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SmsGateway(ABC):
    @abstractmethod
    def send(self, *, to: str, body: str, key: str) -> None:
        """Send one message. `key` identifies it, so that a gateway can tell a retry from a second message.

        Raises NotSent.
        """


def gateway() -> SmsGateway:
    """Return the sender that SMS_BACKEND names. Raises NotSent if it is not set: production has no sensible default."""
    if not settings.SMS_BACKEND:
        raise NotSent("SMS_BACKEND is not set")
    chosen: SmsGateway = import_string(settings.SMS_BACKEND)()
    return chosen


class FileGateway(SmsGateway):
    """One JSON object a line in `outbox/sms.jsonl`: embedded mode, where every flow can be tried without a provider."""

    def send(self, *, to: str, body: str, key: str) -> None:
        sent_at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = json.dumps({"to": to, "body": body, "sent_at": sent_at}, ensure_ascii=False) + "\n"
        try:
            make_folder(settings.OUTBOX)
            # One write to a file opened for appending: lines of several processes do not mix.
            file = os.open(settings.OUTBOX / "sms.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
        except OSError as problem:
            raise NotSent(type(problem).__name__) from problem


class ConsoleGateway(SmsGateway):
    """Writes the message to the terminal of the server; for development only."""

    def send(self, *, to: str, body: str, key: str) -> None:
        sys.stdout.write(f"SMS to {to}: {body}\n")
        sys.stdout.flush()


class TwilioGateway(SmsGateway):
    """Twilio's Messages resource (API 2010-04-01).

    It takes no idempotency key, so a try whose outcome is unknown (time ran out after the request was out, a 5xx) is not
    repeated: the message may be on its way. A rejected connection and a 429 have sent nothing.
    """

    def send(self, *, to: str, body: str, key: str) -> None:
        sid, token = settings.SMS_TWILIO_ACCOUNT_SID, settings.SMS_TWILIO_AUTH_TOKEN
        if not (sid and token and settings.SMS_TWILIO_FROM):
            raise NotSent("SMS_TWILIO_ACCOUNT_SID, SMS_TWILIO_AUTH_TOKEN or SMS_TWILIO_FROM is not set")
        url = f"{settings.SMS_TWILIO_URL}/2010-04-01/Accounts/{sid}/Messages.json"
        sent = {"To": to, "From": settings.SMS_TWILIO_FROM, "Body": body}
        _deliver(url, repeatable=False, data=sent, auth=(sid, token))


class HttpGateway(SmsGateway):
    """A custom gateway: POST of JSON {to, body} with `Idempotency-Key`, any 2xx is success.

    The gateway must recognise the key (draft-ietf-httpapi-idempotency-key-header): then a try whose outcome is unknown
    can be repeated without sending twice.
    """

    def send(self, *, to: str, body: str, key: str) -> None:
        url = settings.SMS_HTTP_URL
        if not url:
            raise NotSent("SMS_HTTP_URL is not set")
        headers = {"Idempotency-Key": f'"{key}"'}
        if settings.SMS_HTTP_TOKEN:
            headers["Authorization"] = f"Bearer {settings.SMS_HTTP_TOKEN}"
        _deliver(url, repeatable=True, json={"to": to, "body": body}, headers=headers)


def _deliver(url: str, *, repeatable: bool, **sent: Any) -> None:
    """POST the arguments `sent` of requests until they are handed over, rejected for good, or the time is up.

    Raises NotSent if they are not handed over.
    """
    ends = time.monotonic() + DEADLINE_SECONDS
    reason = "no time left"
    for turn in range(TRIES):
        left = ends - time.monotonic()
        if left <= 0:
            break
        try:
            # Half of the time that is left, so that a repeatable try that hangs leaves time for another.
            seconds = left / 2 if repeatable and turn < TRIES - 1 else left
            timeout = (min(CONNECT_SECONDS, seconds), seconds)
            with requests.Session() as session:
                session.mount("https://", TrustingAdapter(settings.OUTBOUND_CA))
                response = session.post(url, timeout=timeout, allow_redirects=False, **sent)
        except requests.RequestException as problem:
            reason = type(problem).__name__
            if not (repeatable or _never_left(problem)):
                raise NotSent(reason) from problem
            continue
        if response.status_code < 300:
            return
        reason = f"status {response.status_code}"
        if response.status_code != 429 and not (repeatable and response.status_code >= 500):
            raise NotSent(reason)
        time.sleep(max(0.0, min(0.2 * (turn + 1), ends - time.monotonic())))
    raise NotSent(reason)


def _never_left(problem: requests.RequestException) -> bool:
    """Return whether the connection was never made."""
    if isinstance(problem, requests.ConnectTimeout):
        return True
    cause = getattr(problem.args[0], "reason", None) if problem.args else None
    return isinstance(cause, NewConnectionError | ConnectTimeoutError)
