"""The queue of mails: written in the transaction of what they tell, so that none is lost or sent too early.

A mail is sent at least once. A process that takes one moves its next attempt forward; if it is killed, another process takes
the mail up after that time.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils.timezone import now

from identity_platform.api.email_addresses import email_key
from identity_platform.audit.origin import Origin, current_origin
from identity_platform.crypto import SealBroken, SealContext, seal, unseal
from tenants import keys
from tenants.entering.context import current_tenant
from tenants.entering.target import TENANT_ALIAS
from userflow.mail.models import PlatformMail, QueuedMail, TenantMail
from userflow.signals import mail_queued

log = structlog.get_logger("identity.mail")

GLOBAL_ALIAS: Final = "default"
# For so long a mail is left to the process that has taken it. Longer than the mail server may take for one.
LEASE: Final = timedelta(seconds=60)
_MOMENT: Final = "$datetime"


@dataclass(frozen=True, slots=True)
class MailContent:
    """What a queued mail says, and for whom it is sent."""

    to: str
    # The facts of the template, or the values of a request.
    facts: Mapping[str, object]
    # The caller that caused the mail: its language, and whose budget it counts against.
    origin: Origin
    # The user's own language.
    language: str = ""
    # Whether it has the branding of the tenant.
    branded: bool = False
    # Whether the caller is known to the user who has the address.
    reserved: bool = False
    # What the limit of mails of one kind counts by. Empty: a limit was asked already.
    limited_by: str = ""


@dataclass(frozen=True, slots=True)
class LeasedMail:
    """A mail that this process has taken, until `LEASE` is over."""

    id: int
    template: str
    is_request: bool
    attempts: int
    refusals: int
    expires_at: datetime
    content: MailContent


def queue_mail(
    template: str,
    *,
    to: str,
    facts: Mapping[str, object],
    after: str,
    tenant_id: UUID | None = None,
    language: str = "",
    to_admin: bool = False,
    reserved: bool = False,
    limited: bool = True,
    expires_at: datetime | None = None,
) -> None:
    """Queue templates/email/`template`.txt for `to` in the running transaction of the alias `after`.

    A mail that cannot be sent is only logged. Where it is `limited`, mails of one kind to one address are limited by
    LIMITS["mail"]: addresses may be unverified, so repeated changes could otherwise flood other people with mail. `tenant_id`
    is the tenant in whose name the platform sends. A mail after a tenant's transaction goes to an end user, who may have
    chosen a `language`, unless it is `to_admin`. `reserved`: see `budgets.is_within_budget`. The mail is given up at
    `expires_at`, by default after settings.MAIL_RETRY_SECONDS.
    """
    of_tenant = after == TENANT_ALIAS
    # Counted per tenant: a user of another tenant with the same address must not use up the limit.
    counted_for = current_tenant().tenant_id if of_tenant else tenant_id or "platform"
    content = MailContent(
        to=to,
        facts=facts,
        origin=current_origin(),
        language=language,
        branded=of_tenant and not to_admin,
        reserved=reserved,
        limited_by=f"{counted_for} {template} {to.lower()}" if limited else "",
    )
    _write(after, template, content, expires_at=expires_at)


def queue_request(kind: str, *, address: str, values: Mapping[str, object], after: str) -> None:
    """Queue what finds out whether a mail is due to `address`, a key of `email_key`, in the database of the alias `after`.

    For callers who must not learn it from the time of the response: the row is written in any case.
    `userflow.mail_delivery.requests` has the kinds.
    """
    content = MailContent(to=address, facts=values, origin=current_origin())
    _write(after, kind, content, is_request=True)


def _write(
    alias: str, template: str, content: MailContent, *, is_request: bool = False, expires_at: datetime | None = None
) -> None:
    longest = now() + timedelta(seconds=settings.MAIL_RETRY_SECONDS)
    address = email_key(content.to)
    queue_of(alias)._default_manager.create(
        template=template,
        is_request=is_request,
        address=address,
        content_sealed=seal(_encoded(content), data_key=_data_key(alias), context=_context(alias, address)),
        expires_at=min(expires_at or longest, longest),
    )
    tenant_id = current_tenant().tenant_id if alias == TENANT_ALIAS else None
    transaction.on_commit(partial(mail_queued.send, QueuedMail, tenant_id=tenant_id), using=alias)


def forget_mails(address: str) -> None:
    """Delete the queued mails to an address of a user of the entered tenant who is being erased."""
    TenantMail.objects.filter(address=address).delete()


# --- for those who send ----------------------------------------------------------------------------------------------


def queue_of(alias: str) -> type[QueuedMail]:
    """Return the table of the queue in the database of this alias."""
    return TenantMail if alias == TENANT_ALIAS else PlatformMail


def take_next(alias: str) -> LeasedMail | None:
    """Take the next mail that is due, None without one. Call it with the tenant entered, outside a transaction.

    A mail is not due while an earlier one to the same address waits. One that cannot be opened is given up. Raises
    DataKeyLocked.
    """
    while (row := _lease_next(alias)) is not None:
        try:
            stored = unseal(row.content_sealed, data_key=_data_key(alias), context=_context(alias, row.address))
        except SealBroken as problem:
            log.error("mail_sealed", template=row.template, alias=alias, mail_id=row.pk, cause=type(problem).__name__)
            _give_up(_taken(alias, row.pk, row.attempts), "sealed")
        else:
            return LeasedMail(
                row.pk, row.template, row.is_request, row.attempts, row.refusals, row.expires_at, _decoded(stored)
            )
    return None


def _lease_next(alias: str) -> QueuedMail | None:
    waiting = queue_of(alias)._default_manager.filter(status=QueuedMail.PENDING)
    earlier = waiting.filter(address=OuterRef("address"), pk__lt=OuterRef("pk"))
    due = waiting.filter(~Exists(earlier), next_attempt_at__lte=now()).order_by("next_attempt_at", "pk")
    with transaction.atomic(using=alias):
        row = due.select_for_update(skip_locked=True, of=("self",)).first()
        if row is not None:
            row.attempts += 1
            row.next_attempt_at = now() + LEASE
            row.save(update_fields=["attempts", "next_attempt_at"])
    return row


def seconds_to_next(alias: str) -> float | None:
    """Return in how many seconds the next mail is due, at least 0; None without one."""
    waiting = queue_of(alias)._default_manager.filter(status=QueuedMail.PENDING).order_by("next_attempt_at")
    moment = waiting.values_list("next_attempt_at", flat=True).first()
    return None if moment is None else max(0.0, (moment - now()).total_seconds())


def remove(alias: str, mail: LeasedMail) -> None:
    """Remove a mail that is sent, or is not to be sent."""
    _taken(alias, mail.id, mail.attempts).delete()


def put_back(alias: str, mail: LeasedMail, *, seconds: float, error: str, refused: bool = False) -> None:
    """Let a mail be tried again after some seconds; `refused`: the mail server has answered that it does not take it."""
    _taken(alias, mail.id, mail.attempts).update(
        next_attempt_at=now() + timedelta(seconds=seconds), last_error=error[:64], refusals=mail.refusals + refused
    )


def give_up(alias: str, mail: LeasedMail, *, error: str) -> None:
    """Keep a mail that is not sent any more, without its content: the next one to its address may follow."""
    _give_up(_taken(alias, mail.id, mail.attempts), error)


def _give_up(mails: QuerySet[QueuedMail], error: str) -> None:
    mails.update(status=QueuedMail.DEAD, settled_at=now(), last_error=error[:64], content_sealed=b"")


def _taken(alias: str, mail_id: int, attempts: int) -> QuerySet[QueuedMail]:
    # Not if another process has taken it up since.
    return queue_of(alias)._default_manager.filter(pk=mail_id, attempts=attempts, status=QueuedMail.PENDING)


def _data_key(alias: str) -> bytes:
    return keys.tenant_key(current_tenant().tenant_id) if alias == TENANT_ALIAS else keys.platform_key()


def _context(alias: str, address: str) -> SealContext:
    owner = str(current_tenant().tenant_id) if alias == TENANT_ALIAS else "platform"
    # The row has no id yet. A content copied to another address does not open.
    return SealContext(tenant=owner, table=queue_of(alias)._meta.db_table, column="content", row=address)


def _encoded(content: MailContent) -> bytes:
    def encode(value: object) -> object:
        return {_MOMENT: value.isoformat()} if isinstance(value, datetime) else str(value)

    return json.dumps(asdict(content), default=encode).encode()


def _decoded(stored: bytes) -> MailContent:
    def decode(value: dict[str, object]) -> object:
        return datetime.fromisoformat(str(value[_MOMENT])) if value.keys() == {_MOMENT} else value

    values = json.loads(stored, object_hook=decode)
    origin = values.pop("origin")
    ids = {name: UUID(origin[name]) for name in _IDS if origin[name]}
    return MailContent(**values, origin=Origin(**{**origin, **ids}))


_IDS: Final = ("tenant_id", "client_id", "actor_tenant_id", "address_named_by")
