"""Mails: rendered from templates/email and sent after the response.

A mail server takes seconds and may be down; a response must neither wait for it nor reveal by its timing whether a mail was
sent. Queued mails are lost when the process ends; users request another one.
"""

import contextvars
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from email.headerregistry import Address
from email.utils import parseaddr
from uuid import UUID
from zlib import crc32

import structlog
from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import DatabaseError, connections, transaction
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.translation import gettext_lazy as _

from identity_platform.api import ratelimit
from identity_platform.api.client_address import network_of
from identity_platform.api.display_name import is_misleading
from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ApiError
from identity_platform.audit.origin import Origin, current_origin, set_origin
from identity_platform.crypto import hash_token, keyed_digest
from tenants import keys
from tenants.context import current_tenant, in_tenant
from tenants.states import Purpose
from tenants.target import TENANT_ALIAS
from userflow.branding.colors import DARK, LIGHT, accent
from userflow.branding.models import Branding
from userflow.branding.reading import find_branding, text_of
from userflow.branding.texts import FOOTER, LANGUAGES, accepted_codes, known_language
from userflow.errors import MailBusy, TooManyFromAddress

log = structlog.get_logger("identity.mail")

PLATFORM = "Identity platform"
# What the buttons of mails say; the link is below them.
BUTTONS = {
    "address_taken": _("Sign in"),
    "admin_email_proof": _("Verify e-mail address"),
    "email_changed": _("Keep this address"),
    "email_proof": _("Verify e-mail address"),
    "invitation": _("Accept invitation"),
    "password_reset": _("Set a new password"),
}
# Mails that callers can request for addresses that are not theirs.
REQUESTED = frozenset({"address_taken", "admin_email_proof", "email_proof", "invitation", "password_reset"})
# This share of the budget of an address is kept for callers whom its user is known to be.
RESERVED_PERCENT = 20
_BUDGETS = ("mail_address_hour", "mail_address_day")
# Kinds of callers (userflow.accounts.principals) who act on other people.
STAFF = ("admin", "operator")
# Stands in a link for the language of the mail, which is known when it is sent.
LANGUAGE_OF_MAIL = "{language}"
MOST_WAITING = 1000
SENDERS = 2


class _Senders:
    """The threads that send mails, and what waits for them."""

    def __init__(self) -> None:
        # One thread each: the mails to one address are sent in their order, so that the last code that arrives is the
        # valid one.
        self.pools = [ThreadPoolExecutor(1, thread_name_prefix="mail") for _ in range(SENDERS)]
        self.room = threading.BoundedSemaphore(MOST_WAITING)
        self.pending: set[Future[None]] = set()


_senders = _Senders()


def _replace_senders() -> None:
    """Give a forked process senders of its own: the threads of its parent do not exist in it."""
    global _senders
    _senders = _Senders()


os.register_at_fork(after_in_child=_replace_senders)


def later(work: Callable[[], None], *, to: str) -> None:
    """Run `work`, which sends a mail to the address `to`, after the response, with its origin and no tenant entered.

    Work for one address runs in its order. Raises MailBusy (503).
    """
    senders = _senders
    if not senders.room.acquire(blocking=False):
        raise MailBusy
    # An own context: the request's context (tenant, routes) ends with the request.
    pool = senders.pools[crc32(email_key(to).encode()) % SENDERS]
    future = pool.submit(contextvars.Context().run, _run, current_origin(), work)
    senders.pending.add(future)
    future.add_done_callback(senders.pending.discard)


def _run(origin: Origin, work: Callable[[], None]) -> None:
    set_origin(origin)
    try:
        work()
    except Exception as problem:  # a pool does not report exceptions of its threads
        log.warning("behind_the_request", kind=type(problem).__qualname__)
    finally:
        connections.close_all()
        _senders.room.release()


def settle(seconds: float = 10.0) -> bool:
    """Wait until the queue is empty, for tests and shutdown. Return False after a timeout."""
    until = time.monotonic() + seconds
    # Queued work may queue another mail.
    while waiting := set(_senders.pending):
        if wait(waiting, timeout=max(0.0, until - time.monotonic())).not_done:
            return False
    return True


def limit(group: str, key: str, text: str, *, limits: str = "", counts: bool = True) -> None:
    """Count a mail that a caller causes, against settings.LIMITS[`limits` or `group`], or only check whether it may be sent.

    Raises TooManyFromAddress (429): callers could otherwise send any number of mails to addresses of other people.
    """
    most, seconds = settings.LIMITS[limits or group]
    ask = ratelimit.count if counts else ratelimit.peek
    usage = ask(group=group, key=key, limit=most, period=seconds)
    if usage.limited:
        raise TooManyFromAddress(f"{text} Retry after the time in `Retry-After`.", retry_after=usage.retry_after)


def link(page: object, token: str) -> dict[str, object]:
    """Return the facts `link` and `token` of a mail. Browsers do not send the part after `#`, so no log has the token."""
    return {"link": f"{page}#token={token}", "token": token}


def is_within_budget(template: str, *, to: str, reserved: bool) -> bool:
    """Count a mail against the budgets of its address over all tenants; return whether it may be sent.

    Only mails that callers can request for addresses of others count: notices of what has happened to an account do not.
    One network gets a share only, so that others can still request a mail, and a fifth is kept for `reserved` mails: their
    callers are known to the user who has the address. Without the cache, each process counts for itself.
    """
    if template not in REQUESTED:
        return True
    origin = current_origin()
    address = keyed_digest(email_key(to), key=keys.platform_key(), purpose="mails of an address").hex()
    if reserved and not any(_is_over(name, f"{address} reserved", percent=RESERVED_PERCENT) for name in _BUDGETS):
        return True
    if (share := _share_of(origin)) and _is_over("mail_address_network", f"{address} {share}"):
        return False
    return not any(_is_over(name, address, percent=100 - RESERVED_PERCENT) for name in _BUDGETS)


def _share_of(origin: Origin) -> str:
    """Return whose mails to one address are counted together: those of a network, or of the admins of a tenant."""
    if origin.actor_kind in STAFF:
        return f"tenant {origin.actor_tenant_id}" if origin.actor_tenant_id else ""
    return network_of(origin.address) if origin.address else ""


def _is_over(name: str, key: str, *, percent: int = 100) -> bool:
    most, seconds = settings.LIMITS[name]
    return ratelimit.count(group=name, key=key, limit=max(1, most * percent // 100), period=seconds).limited


def send(
    template: str,
    *,
    to: str,
    facts: Mapping[str, object],
    tenant_id: UUID | None = None,
    language: str = "",
    reserved: bool = False,
) -> None:
    """Send templates/email/`template`.txt to one recipient now, as text and HTML. Errors are logged, never raised.

    A mail over the budgets of its address (`is_within_budget`) is not sent.

    A mail to an end user of the tenant `tenant_id` has its branding and a language that the user reads: `language` is the
    user's own choice. Others are in English.
    """
    if is_within_budget(template, to=to, reserved=reserved):
        _send(template, to=to, facts=facts, tenant_id=tenant_id, language=language)
    else:
        log.warning("mail_held_back", template=template)


def _send(template: str, *, to: str, facts: Mapping[str, object], tenant_id: UUID | None, language: str) -> None:
    branding = _branding_of(tenant_id)
    sender, spoken = str(settings.DEFAULT_FROM_EMAIL), LANGUAGES[0]
    if tenant_id is not None:
        facts = {**facts, "issuer": branding.name or facts["issuer"]}
        sender, spoken = _sender(branding.sender_name or str(facts["issuer"])), _language(branding, language)
    if "link" in facts:
        facts = {**facts, "link": str(facts["link"]).replace(LANGUAGE_OF_MAIL, spoken)}
    with translation.override(spoken):
        subject = " ".join(render_to_string(f"email/{template}.subject.txt", facts).split())
        text = render_to_string(f"email/{template}.txt", facts).strip()
        footer = text_of(branding, FOOTER, spoken)
        html = _html(template, subject, text, footer, facts, branding)
    plain = f"{text}\n\n-- \n{footer}\n" if footer else f"{text}\n"
    # Prevents automatic replies (RFC 3834 section 5).
    headers = {"Auto-Submitted": "auto-generated"}
    message = EmailMultiAlternatives(subject, plain, sender, to=[to], headers=headers)
    message.attach_alternative(html, "text/html")
    try:
        message.send()
    except OSError as problem:  # smtplib's errors are OSErrors
        log.warning("mail_not_sent", template=template, kind=type(problem).__name__)


def _branding_of(tenant_id: UUID | None) -> Branding:
    if tenant_id is None:
        return Branding()
    try:
        with in_tenant(tenant_id, Purpose.READ):
            return find_branding()
    except (ApiError, DatabaseError):
        # The mail is more important than its looks.
        return Branding()


def _language(branding: Branding, own: str) -> str:
    """Return the language that the application asked for, else the user's `own`, that of the page, the tenant, the request.

    A request of an admin or operator says nothing about the language of the user who gets the mail.
    """
    origin = current_origin()
    if own and not origin.language_is_asked_for:
        return own
    accepted = "" if origin.actor_kind in STAFF else origin.accept_language
    return origin.language or branding.language or known_language(accepted_codes(accepted)) or LANGUAGES[0]


def _sender(name: str) -> str:
    """Return the platform's address with the tenant's name.

    The name can also be that of the tenant, which is under no rule: one that could pass for another sender is not used.
    """
    _, address = parseaddr(str(settings.DEFAULT_FROM_EMAIL))
    shown = " ".join(name.split())
    return str(Address(PLATFORM if is_misleading(shown) else shown, addr_spec=address))


def _html(template: str, subject: str, text: str, footer: str, facts: Mapping[str, object], branding: Branding) -> str:
    """Return the text as HTML: a link on a line of its own becomes a button, a code is easy to select."""
    secrets = {str(facts[name]) for name in ("token", "code") if facts.get(name)}
    values = {
        "language": translation.get_language(),
        "subject": subject,
        "issuer": facts.get("issuer") or facts.get("tenant") or PLATFORM,
        "paragraphs": [(part, _kind(part, facts, secrets)) for part in map(str.strip, text.split("\n\n")) if part],
        "button": BUTTONS.get(template, ""),
        "footer": footer,
        "light": accent(branding.color_light, LIGHT),
        "dark": accent(branding.color_dark, DARK),
    }
    return render_to_string("email/layout.html", values)


def _kind(paragraph: str, facts: Mapping[str, object], secrets: set[str]) -> str:
    if paragraph == facts.get("link"):
        return "link"
    return "secret" if paragraph in secrets else "text"


def tell(
    template: str,
    *,
    to: str,
    facts: Mapping[str, object],
    after: str,
    tenant_id: UUID | None = None,
    language: str = "",
    to_admin: bool = False,
) -> None:
    """Send once the running transaction of the alias `after` is committed; a mail that cannot be sent is only logged.

    Mails of one kind to one address are limited by LIMITS["mail"]: addresses may be unverified, so repeated changes could
    otherwise flood other people with mail. `tenant_id` is the tenant in whose name the platform sends. A mail after a
    tenant's transaction goes to an end user, who may have chosen a `language`, unless it is `to_admin`.
    """
    # Counted per tenant: a user of another tenant with the same address must not use up the limit.
    place = current_tenant().tenant_id if after == TENANT_ALIAS else tenant_id or "platform"
    end_users_tenant = current_tenant().tenant_id if after == TENANT_ALIAS and not to_admin else None

    def work() -> None:
        most, seconds = settings.LIMITS["mail"]
        key = hash_token(f"{place} {template} {to.lower()}").hex()
        # First what one caller may use up: mails that it holds back must not count against those of others.
        if (
            not is_within_budget(template, to=to, reserved=False)
            or ratelimit.count(group="mail", key=key, limit=most, period=seconds).limited
        ):
            log.warning("mail_held_back", template=template)
            return
        _send(template, to=to, facts=facts, tenant_id=end_users_tenant, language=language)

    def hand_over() -> None:
        try:
            later(work, to=to)
        except MailBusy:
            log.warning("mail_not_sent", template=template, kind="MailBusy")

    transaction.on_commit(hand_over, using=after)
