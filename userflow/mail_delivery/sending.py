"""Send the mails of one queue that are due, one after the other.

No tenant is entered while the mail server is asked: it may be slow, and a tenant has few database connections.
"""

import smtplib
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import transaction
from django.utils.timezone import now
from prometheus_client import Counter

from identity_platform.api import ratelimit
from identity_platform.audit.origin import set_origin
from identity_platform.crypto import hash_token
from identity_platform.wakeups import Wakeups
from tenants.entering.context import in_tenant
from tenants.entering.target import TENANT_ALIAS
from tenants.states import Purpose
from userflow.branding.reading import find_branding
from userflow.mail import queue
from userflow.mail.budgets import is_within_budget
from userflow.mail.queue import GLOBAL_ALIAS, LeasedMail
from userflow.mail.rendering import render
from userflow.mail_delivery.requests import REQUESTS

log = structlog.get_logger("identity.mail")
OUTCOMES = Counter("identity_mails", "Mails, by outcome.", ["outcome"])
wakeups = Wakeups("mails")

# Pauses before another attempt at a mail that the mail server did not take now, growing with each attempt.
FIRST_RETRY_SECONDS: Final = 60.0
LONGEST_RETRY_SECONDS: Final = 900.0
# After a mail that a defect keeps from being sent.
DEFECT_RETRY_SECONDS: Final = 300.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_PERMANENT: Final = 500
# A mail server that is set up wrongly refuses mails for good that it takes an hour later.
ATTEMPTS_IF_REFUSED: Final = 5


class MailServerPause:
    """Keeps a process from asking a mail server that does not respond: for a second, then twice as long each time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._failures = 0

    def seconds(self) -> float:
        """Return how long the pause still lasts."""
        return max(0.0, self._until - time.monotonic())

    def begin(self) -> float:
        """Note a failure; return how long the pause lasts, in seconds."""
        with self._lock:
            pause = min(_LONGEST_PAUSE_SECONDS, 2.0 ** min(self._failures, 10))
            self._failures += 1
            self._until = time.monotonic() + pause
        return pause

    def end(self) -> None:
        """Note that the mail server responds."""
        with self._lock:
            self._failures, self._until = 0, 0.0


PAUSE = MailServerPause()


def member(tenant_id: UUID | None) -> str:
    """Return how the wake-ups name a queue: that of a tenant, or the global one."""
    return str(tenant_id) if tenant_id is not None else "platform"


def send_due(tenant_id: UUID | None, *, ending: Callable[[], bool] = lambda: False) -> float | None:
    """Send the mails of one queue that are due; return in how many seconds the next one is, None without one.

    Several processes may call this for one queue at the same time. Raises what `in_tenant` raises.
    """
    alias = TENANT_ALIAS if tenant_id is not None else GLOBAL_ALIAS
    while not ending():
        if pause := PAUSE.seconds():
            return pause
        with _entered(tenant_id):
            mail = queue.take_next(alias)
            if mail is None:
                return queue.seconds_to_next(alias)
            set_origin(mail.content.origin)
            message = _prepared(alias, tenant_id, mail)
        if message is not None:
            _send(alias, tenant_id, mail, message)
    return 0.0


def _entered(tenant_id: UUID | None) -> AbstractContextManager[object]:
    """Enter the tenant, also a suspended one: its users still learn what happened to their accounts."""
    return nullcontext() if tenant_id is None else in_tenant(tenant_id, Purpose.SIGN_OUT)


def _prepared(alias: str, tenant_id: UUID | None, mail: LeasedMail) -> EmailMultiAlternatives | None:
    """Return the message of a mail. None if there is none to send: the row is settled then."""
    if mail.expires_at <= now():
        queue.give_up(alias, mail, error="expired")
        _note("expired", tenant_id, mail)
        return None
    try:
        if mail.is_request:
            with transaction.atomic(using=alias):
                REQUESTS[mail.template](mail.content.to, mail.content.facts)
                queue.remove(alias, mail)
            return None
        if mail.attempts == 1 and not _may_be_sent(mail):
            queue.remove(alias, mail)
            _note("held_back", tenant_id, mail)
            return None
        content = mail.content
        branding = find_branding() if content.branded else None
        return render(mail.template, to=content.to, facts=content.facts, branding=branding, language=content.language)
    except Exception as problem:
        # The next mails are sent all the same.
        queue.put_back(alias, mail, seconds=DEFECT_RETRY_SECONDS, error=type(problem).__qualname__)
        _note("failed", tenant_id, mail, error=type(problem).__qualname__, again=DEFECT_RETRY_SECONDS)
        return None


def _may_be_sent(mail: LeasedMail) -> bool:
    content = mail.content
    # First what one caller may use up: mails that it holds back must not count against those of others.
    if not is_within_budget(mail.template, to=content.to, reserved=content.reserved):
        return False
    if not content.limited_by:
        return True
    most, seconds = settings.LIMITS["mail"]
    key = hash_token(content.limited_by).hex()
    return not ratelimit.count(group="mail", key=key, limit=most, period=seconds).limited


def _send(alias: str, tenant_id: UUID | None, mail: LeasedMail, message: EmailMultiAlternatives) -> None:
    """Hand the message to the mail server and record the outcome."""
    try:
        message.send()
    except OSError as problem:  # smtplib's errors are OSErrors
        error, refused = _error_code(problem), _concerns_this_mail(problem)
        if refused:
            PAUSE.end()
        seconds = _retry_seconds(mail) if refused else PAUSE.begin()
        is_final = _is_permanent(problem) and mail.refusals + 1 >= ATTEMPTS_IF_REFUSED
        ends = is_final or mail.expires_at <= now() + timedelta(seconds=seconds)
        with _entered(tenant_id):
            if ends:
                queue.give_up(alias, mail, error=error)
            else:
                queue.put_back(alias, mail, seconds=seconds, error=error, refused=refused)
        _note("given_up" if ends else "failed", tenant_id, mail, error=error, again=None if ends else seconds)
    else:
        PAUSE.end()
        with _entered(tenant_id):
            queue.remove(alias, mail)
        _note("sent", tenant_id, mail)


def _note(
    outcome: str, tenant_id: UUID | None, mail: LeasedMail, *, error: str = "", again: float | None = None
) -> None:
    OUTCOMES.labels(outcome).inc()
    facts = {
        "template": mail.template,
        "tenant": str(tenant_id) if tenant_id is not None else None,
        "request_id": mail.content.origin.request_id,
        "attempts": mail.attempts,
    }
    if outcome == "sent":
        log.info("mail_sent", **facts)
    elif outcome == "held_back":
        log.warning("mail_held_back", **facts)
    else:
        log.warning("mail_not_sent", **facts, outcome=outcome, error=error, again_in_seconds=again and round(again))


def _retry_seconds(mail: LeasedMail) -> float:
    return min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 3.0 ** min(mail.refusals, 10))


def _codes(problem: OSError) -> list[int]:
    """Return the reply codes of the mail server to this mail (RFC 5321 section 4.2.1), none if something else failed."""
    if isinstance(problem, smtplib.SMTPRecipientsRefused):
        return [code for code, _text in problem.recipients.values()]
    return [problem.smtp_code] if isinstance(problem, smtplib.SMTPDataError) else []


def _concerns_this_mail(problem: OSError) -> bool:
    """Return whether the mail server responds, and does not take this mail or this recipient."""
    return bool(_codes(problem))


def _is_permanent(problem: OSError) -> bool:
    codes = _codes(problem)
    return bool(codes) and all(code >= _PERMANENT for code in codes)


def _error_code(problem: OSError) -> str:
    codes = _codes(problem)
    return f"{type(problem).__name__} {max(codes)}" if codes else type(problem).__name__
