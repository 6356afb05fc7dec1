"""Remembered devices: browsers in which an end user skips the second step of a sign-in at the hosted pages for some days.

A device is a ticket of its own purpose, so it ends where the tickets of its user end, in the same transaction. It shows that
a second step was done earlier, not now: the session that it completes is that of the password alone (`amr` pwd, `acr` aal1),
and every step-up asks for the factor (NIST SP 800-63B-4 section 2.2). A tenant that requires a factor has no such devices.
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
from userflow.accounts.session_models import EndUserSession, EndUserTicket, Ticket
from userflow.accounts.session_policy import AAL2, required_acr
from userflow.credentials import tickets
from userflow.credentials.tickets import REMEMBERED
from userflow.errors import NotSignedInByTicket
from userflow.sessions.cookies import cookie_digest
from userflow.signin.delivery import BrowserCookie
from userflow.signin.pipeline import SignedIn, completion_of

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


def _lifetime(own: Mapping[str, object]) -> timedelta:
    if required_acr(END_USER, own) == AAL2:
        return timedelta(0)
    return timedelta(days=effective(own)["remember_device_days"])


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


def complete_by_device(
    *, tenant_id: UUID, mfa_token: str, device: str, delivery: BrowserCookie
) -> tuple[SignedIn[EndUser], Cookie] | None:
    """Complete the sign-in of `mfa_token` without its second step; return it, and the next cookie of the device.

    Return None, with nothing changed, for a device that is not remembered for this user. A cookie that was used before was
    copied: all devices of its user are forgotten. Raises
    NotSignedInByTicket (401), EmailNotVerified (403), WrongCredentials.
    """
    with in_tenant(tenant_id, Purpose.SIGN_IN) as tenant:
        lasts = lifetime(tenant)
        if not lasts:
            return None
        login = tickets.find_ticket(END_USERS, mfa_token, tickets.SECOND_STEP)
        with END_USERS.atomic():
            user = EndUser.objects.select_for_update(no_key=True).filter(pk=login.user.pk, active=True).first()
            if user is None:
                raise NotSignedInByTicket
            kept = EndUserTicket._default_manager.filter(
                digest=cookie_digest(device),
                purpose=REMEMBERED,
                user_id=user.pk,
                expires_at__range=(now(), now() + lasts),
            ).first()
            if kept is None or not _is_unused(kept, user):
                return None
            return _complete(user, login, kept, delivery)


def _is_unused(kept: EndUserTicket, user: EndUser) -> bool:
    if kept.used_at is None:
        return True
    if now() - kept.used_at > RACE:
        forgotten = tickets.forget_devices(END_USERS, user.pk)
        details = {"forgotten": forgotten}
        END_USERS.record("device.reused", target=("user", user.pk), outcome="refused", details=details)
    return False


def _complete(
    user: EndUser, login: Ticket, kept: EndUserTicket, delivery: BrowserCookie
) -> tuple[SignedIn[EndUser], Cookie]:
    tickets.consume_ticket(END_USERS, kept)
    tickets.consume_ticket(END_USERS, login)
    signed_in = completion_of(user, amr=(), delivery=delivery, login=login).open(END_USERS, user)
    END_USERS.record("device.used", target=("user", user.pk))
    # The time counts from the second step, however often the device is used.
    return signed_in, _stored(user, signed_in.session_id, kept.expires_at)


def remembered_devices(user_id: UUID) -> list[RememberedDevice]:
    """Return the devices of the user, last used first. Call it in the tenant."""
    kept = list(_valid(user_id).order_by("-created_at"))
    sessions = EndUserSession._default_manager.in_bulk([one.session_id for one in kept if one.session_id is not None])
    return [_shown(one, sessions.get(one.session_id) if one.session_id is not None else None) for one in kept]


def _shown(kept: EndUserTicket, session: EndUserSession | None) -> RememberedDevice:
    agent, address = (session.user_agent, session.address) if session is not None else ("", "")
    return RememberedDevice(bytes(kept.digest).hex(), agent, address, kept.created_at, kept.expires_at)


def forget_device(*, user_id: UUID, device_id: str) -> bool:
    """Forget one device of the user; return whether there was one. Call it in the tenant."""
    digests = [one.pk for one in _valid(user_id) if bytes(one.digest).hex() == device_id]
    with END_USERS.atomic():
        found = bool(EndUserTicket._default_manager.filter(pk__in=digests).delete()[0])
        if found:
            END_USERS.record("device.forgotten", target=("user", user_id))
    return found


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
