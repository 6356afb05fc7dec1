"""Mails: rendered from templates/email and sent after the response.

A mail server takes seconds and may be down; a response must neither wait for it nor reveal by its timing whether a mail was
sent. Queued mails are lost when the process ends; users request another one.
"""

import contextvars
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from uuid import UUID

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connections, transaction
from django.template.loader import render_to_string

from identity_platform.api import ratelimit
from identity_platform.audit.origin import Origin, current_origin, set_origin
from identity_platform.crypto import hash_token
from tenants.context import current_tenant
from tenants.target import TENANT_ALIAS
from userflow.errors import MailBusy, TooManyFromAddress

log = structlog.get_logger("identity.mail")

MOST_WAITING = 1000
SENDERS = 2
_senders = ThreadPoolExecutor(SENDERS, thread_name_prefix="mail")
_room = threading.BoundedSemaphore(MOST_WAITING)
_pending: set[Future[None]] = set()


def later(work: Callable[[], None]) -> None:
    """Run `work` after the response, with this request's origin and no tenant entered. Raises MailBusy (503)."""
    if not _room.acquire(blocking=False):
        raise MailBusy
    # An own context: the request's context (tenant, routes) ends with the request.
    future = _senders.submit(contextvars.Context().run, _run, current_origin(), work)
    _pending.add(future)
    future.add_done_callback(_pending.discard)


def _run(origin: Origin, work: Callable[[], None]) -> None:
    set_origin(origin)
    try:
        work()
    except Exception as problem:  # a pool does not report exceptions of its threads
        log.warning("behind_the_request", kind=type(problem).__qualname__)
    finally:
        connections.close_all()
        _room.release()


def settle(seconds: float = 10.0) -> bool:
    """Wait until the queue is empty, for tests and shutdown. Return False after a timeout."""
    until = time.monotonic() + seconds
    # Queued work may queue another mail.
    while waiting := set(_pending):
        if wait(waiting, timeout=max(0.0, until - time.monotonic())).not_done:
            return False
    return True


def limit(group: str, key: str, text: str, *, limits: str = "") -> None:
    """Count a mail that a caller causes, against settings.LIMITS[`limits` or `group`].

    Raises TooManyFromAddress (429): callers could otherwise send any number of mails to addresses of other people.
    """
    most, seconds = settings.LIMITS[limits or group]
    usage = ratelimit.count(group=group, key=key, limit=most, period=seconds)
    if usage.limited:
        raise TooManyFromAddress(f"{text} Retry after the time in `Retry-After`.", retry_after=usage.retry_after)


def link(page: object, token: str) -> dict[str, object]:
    """Return the facts `link` and `token` of a mail. Browsers do not send the part after `#`, so no log has the token."""
    return {"link": f"{page}#token={token}", "token": token}


def send(template: str, *, to: str, facts: Mapping[str, object]) -> None:
    """Send templates/email/`template`.txt to one recipient now. Errors are logged, never raised."""
    subject = render_to_string(f"email/{template}.subject.txt", facts).strip()
    text = render_to_string(f"email/{template}.txt", facts)
    # Prevents automatic replies (RFC 3834 section 5).
    message = EmailMessage(" ".join(subject.split()), text, to=[to], headers={"Auto-Submitted": "auto-generated"})
    try:
        message.send()
    except OSError as problem:  # smtplib's errors are OSErrors
        log.warning("mail_not_sent", template=template, kind=type(problem).__name__)


def tell(template: str, *, to: str, facts: Mapping[str, object], after: str, tenant_id: UUID | None = None) -> None:
    """Send once the running transaction of the alias `after` is committed; a mail that cannot be sent is only logged.

    Mails of one kind to one address are limited by LIMITS["mail"]: addresses may be unverified, so repeated changes could
    otherwise flood other people with mail. `tenant_id` is the tenant in whose name the platform sends.
    """
    # Counted per tenant: a user of another tenant with the same address must not use up the limit.
    place = current_tenant().tenant_id if after == TENANT_ALIAS else tenant_id or "platform"

    def work() -> None:
        most, seconds = settings.LIMITS["mail"]
        key = hash_token(f"{place} {template} {to.lower()}").hex()
        if ratelimit.count(group="mail", key=key, limit=most, period=seconds).limited:
            log.warning("mail_held_back", template=template)
            return
        send(template, to=to, facts=facts)

    def hand_over() -> None:
        try:
            later(work)
        except MailBusy:
            log.warning("mail_not_sent", template=template, kind="MailBusy")

    transaction.on_commit(hand_over, using=after)
