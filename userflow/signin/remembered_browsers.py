"""Remembered browsers: in them an end user skips the second step of a sign-in at the hosted pages for some days.

Users read of devices. A device is a ticket of its own purpose, so it ends where the tickets of its user end, in the same
transaction. It shows that a second step was done earlier, not now: the session that it completes is that of the password alone
(`amr` pwd, `acr` aal1), and every step-up asks for the factor (NIST SP 800-63B-4 section 2.2). A tenant that requires a factor
has no such devices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils.timezone import now

from identity_platform.places import place_of
from tenants.entering.context import current_tenant, in_tenant
from tenants.entering.lookup import TenantContext
from tenants.settings.values import effective
from tenants.states import Purpose
from userflow.accounts.models import EndUser
from userflow.accounts.principals import END_USER
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession, EndUserTicket
from userflow.accounts.session_policy import AAL2, required_acr
from userflow.credentials import tickets
from userflow.credentials.tickets import REMEMBERED
from userflow.sessions.cookies import cookie_digest

MOST_DEVICES: Final = 10
# Two requests of one browser at once send the same cookie; one of them comes after the rotation.
RACE: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Cookie:
    """The value that a browser keeps, and until when."""

    value: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class RememberedDevice:
    """A device as its user sees it. `used_at` is its last sign-in."""

    id: str
    user_agent: str
    address: str
    used_at: datetime
    expires_at: datetime

    @property
    def place(self) -> str:
        """Where it was last used, in words of the active language; "" if that is not known."""
        return place_of(self.address)


def lifetime(tenant: TenantContext) -> timedelta:
    """Return for how long the tenant's users can have a device remembered; zero if not at all."""
    return _lifetime(tenant.settings)


def _lifetime(settings: Mapping[str, object]) -> timedelta:
    if required_acr(END_USER, settings) == AAL2:
        return timedelta(0)
    return timedelta(days=effective(settings)["remember_device_days"])


def remember_device(*, session_id: UUID, replaced: str | None) -> Cookie | None:
    """Remember the browser of this session, whose second step is done; return its cookie, or None if it cannot be.

    `replaced` is the cookie that the browser had before. Of more than ten devices the oldest is forgotten. Call it in the
    tenant.
    """
    lasts = lifetime(current_tenant())
    if not lasts:
        return None
    active = EndUserSession._default_manager.filter(pk=session_id, ended_at=None)
    with END_USERS.atomic():
        # A change of factors or password locks the user too: it finds this device, or this finds the session ended.
        owner = EndUser.objects.select_for_update(no_key=True).filter(pk__in=active.values("user_id")).first()
        if owner is None or not active.exists():
            return None
        user_id = owner.pk
        if replaced is not None:
            EndUserTicket._default_manager.filter(digest=cookie_digest(replaced), purpose=REMEMBERED).delete()
        oldest = _valid(user_id).order_by("-created_at").values_list("pk", flat=True)[MOST_DEVICES - 1 :]
        EndUserTicket._default_manager.filter(pk__in=list(oldest)).delete()
        cookie = _stored(owner, session_id, now() + lasts)
        END_USERS.record("device.remembered", target=("user", user_id))
    return cookie


def find_device(user: EndUser, cookie: str) -> EndUserTicket | None:
    """Return the device of this cookie, or None, with nothing changed, if it is not remembered for this user.

    A cookie that was used before was copied: all devices of its user are forgotten. Call it in the user's tenant, in a
    transaction: the user stays locked until its end.
    """
    lasts = lifetime(current_tenant())
    if not lasts or not EndUser.objects.select_for_update(no_key=True).filter(pk=user.pk, active=True).exists():
        return None
    ticket = EndUserTicket._default_manager.filter(
        digest=cookie_digest(cookie), purpose=REMEMBERED, user_id=user.pk, expires_at__range=(now(), now() + lasts)
    ).first()
    return ticket if ticket is not None and _is_unused(ticket, user) else None


def renew_device(user: EndUser, ticket: EndUserTicket, session_id: UUID) -> Cookie:
    """Use the device for this session; return its next cookie. Call it in the transaction of `find_device`.

    The time counts from the second step, however often the device is used. Raises NotSignedInByTicket if it is used already.
    """
    tickets.consume_ticket(END_USERS, ticket)
    END_USERS.record("device.used", target=("user", user.pk))
    return _stored(user, session_id, ticket.expires_at)


def _is_unused(ticket: EndUserTicket, user: EndUser) -> bool:
    if ticket.used_at is None:
        return True
    if now() - ticket.used_at > RACE:
        forgotten = tickets.forget_devices(END_USERS, user.pk)
        details = {"forgotten": forgotten}
        END_USERS.record("device.reused", target=("user", user.pk), outcome="refused", details=details)
    return False


def remembered_devices(user_id: UUID) -> list[RememberedDevice]:
    """Return the devices of the user, last used first. Call it in the tenant."""
    valid = list(_valid(user_id).order_by("-created_at"))
    session_ids = {ticket.session_id for ticket in valid} - {None}
    sessions = EndUserSession._default_manager.in_bulk(session_ids)
    return [_shown(ticket, sessions.get(ticket.session_id)) for ticket in valid]


def _shown(ticket: EndUserTicket, session: EndUserSession | None) -> RememberedDevice:
    agent, address = (session.user_agent, session.address) if session is not None else ("", "")
    return RememberedDevice(bytes(ticket.digest).hex(), agent, address, ticket.created_at, ticket.expires_at)


def forget_device(*, user_id: UUID, device_id: str) -> bool:
    """Forget one device of the user; return whether there was one. Call it in the tenant."""
    digests = [ticket.pk for ticket in _valid(user_id) if bytes(ticket.digest).hex() == device_id]
    with END_USERS.atomic():
        is_forgotten = bool(EndUserTicket._default_manager.filter(pk__in=digests).delete()[0])
        if is_forgotten:
            END_USERS.record("device.forgotten", target=("user", user_id))
    return is_forgotten


def forget_devices_of_tenant(
    sender: object, *, tenant_id: UUID, before: Mapping[str, object], after: Mapping[str, object], **_: object
) -> None:
    """Forget every device if the tenant shortens `remember_device_days` or requires a factor.

    Receiver of `tenant_settings_changing`. Raises TenantBusy. A sign-in at the same moment may still store a device that lasts
    longer than the tenant now allows: it does not skip the second step.
    """
    if _lifetime(after) < _lifetime(before):
        with in_tenant(tenant_id, Purpose.EDIT_USERS):
            EndUserTicket._default_manager.filter(purpose=REMEMBERED).delete()


def _valid(user_id: UUID) -> "QuerySet[EndUserTicket]":
    return EndUserTicket._default_manager.filter(
        user_id=user_id, purpose=REMEMBERED, used_at=None, expires_at__gt=now()
    )


def _stored(user: EndUser, session_id: UUID, expires_at: datetime) -> Cookie:
    ticket, value = tickets.new_ticket(END_USERS, user, REMEMBERED)
    ticket.digest = cookie_digest(value)
    ticket.session_id, ticket.expires_at = session_id, expires_at
    ticket.save(force_insert=True)
    return Cookie(value, expires_at)
