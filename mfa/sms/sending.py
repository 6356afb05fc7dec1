"""Send messages within budgets against toll fraud.

The counters per user and tenant are in the tenant's database, so that losing the cache resets nothing. The counters per
network address and phone number span tenants and are in Valkey; while they cannot be read, nothing is sent.
"""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db.models import Count, Max
from django.utils.timezone import now
from prometheus_client import Counter

from identity_platform.api import ratelimit
from identity_platform.api.cache import degraded
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import keyed_digest
from identity_platform.postgresql.transactions import advisory_lock
from mfa.errors import SmsBudgetSpent, SmsReserved, SmsUnavailable
from mfa.sms import codes
from mfa.sms.gateway import NotSent, gateway
from mfa.sms.models import SmsMessage
from tenants import keys
from tenants.entering.context import current_tenant, in_tenant
from tenants.states import Purpose
from userflow.accounts.models import EndUser
from userflow.credentials import attempts

log = structlog.get_logger("identity.sms")
SENT = Counter("identity_sms_messages", "Messages by outcome.", ["outcome"])
# Without a label: a counter that appears with its first event has never increased for Prometheus.
ALARMS = Counter("identity_sms_conversion_alarm", "Countries whose codes were hardly ever used.")

TENANT_BUDGET_LOCK: Final = 7_215_006
# This share of a tenant's daily budget is reserved for codes to enrolled phones, for callers who hold a ticket or token of
# the user. Anyone can register and get a ticket, so enrolling a phone does not use it.
KEPT_PERCENT: Final = 20
# A younger code may still be used, so it does not count for the conversion yet.
_YOUNG: Final = timedelta(minutes=5)


def check_caller(*, user: EndUser, caller: str) -> None:
    """Check the limits of the user and count one request of the caller's address, whether or not a message follows.

    The messages of other callers do not count for callers who hold a ticket or token of the user; for all others every
    message counts. Raises SmsBudgetSpent (429), or SmsUnavailable (503) if the counters cannot be read.
    """
    _check_user(user, caller)
    most, seconds = settings.SMS_LIMITS["address_hour"]
    network = attempts.caller_network() or "local"
    _check(ratelimit.count(group="sms_address", key=network, limit=most, period=seconds))


def reserve(*, user: EndUser, caller: str, number: codes.MobileNumber, enrolled: bool) -> SmsMessage:
    """Count one message before it is sent. Call it in a transaction, with the user's row locked.

    `enrolled`: the number is a phone that the user has confirmed. Raises SmsReserved or SmsBudgetSpent (429), or
    SmsUnavailable (503) if the counters cannot be read.
    """
    reserved = enrolled and caller == attempts.SIGNED_IN
    _check_tenant(reserved=reserved)
    # Last, so that only sent messages count: failing calls must not use up the messages of a number.
    _count_number(number, reserved=reserved)
    return SmsMessage.objects.create(user=user, caller=caller, country_prefix=number.country_prefix)


def _check_user(user: EndUser, caller: str) -> None:
    counted = SmsMessage.objects.filter(user=user)
    if caller == attempts.SIGNED_IN:
        counted = counted.filter(caller=caller)
    for name in ("user_day", "user_hour", "user_minute"):
        most, seconds = settings.SMS_LIMITS[name]
        times = list(
            counted.filter(sent_at__gt=now() - timedelta(seconds=seconds), failed=False)
            .order_by("-sent_at")
            .values_list("sent_at", flat=True)[:most]
        )
        if len(times) >= most:
            raise SmsBudgetSpent(retry_after=_until(times[-1], seconds))


def _until(oldest: datetime, seconds: int) -> int:
    return int((oldest + timedelta(seconds=seconds) - now()).total_seconds()) + 1


def _count_number(number: codes.MobileNumber, *, reserved: bool) -> None:
    """Count a message to the number, whichever tenant and user it is for. A failed message counts: it may arrive.

    Anyone can begin to enroll the number of another person. That uses up no code of the person who has enrolled it and has
    proven the first factor: those are counted by themselves, with the same limits.
    """
    digest = keyed_digest(number.e164, key=keys.platform_key(), purpose="sms number").hex()
    digest = f"{digest} reserved" if reserved else digest
    for name in ("number_hour", "number_day"):
        most, seconds = settings.SMS_LIMITS[name]
        _check(ratelimit.count(group=f"sms_{name}", key=digest, limit=most, period=seconds))


def _check(usage: ratelimit.Usage) -> None:
    if degraded():
        # Each process would count on its own, with the whole budget.
        raise SmsUnavailable
    if usage.limited:
        raise SmsBudgetSpent(retry_after=usage.retry_after)


def _check_tenant(*, reserved: bool) -> None:
    most, seconds = settings.SMS_LIMITS["tenant_day"]
    # One at a time per tenant: parallel requests would all see the last message of the budget.
    advisory_lock("tenant", TENANT_BUDGET_LOCK)
    today = SmsMessage.objects.filter(sent_at__gt=now() - timedelta(seconds=seconds))
    used = today.aggregate(number=Count("id"), last=Max("sent_at"))
    free = most if reserved else most - most * KEPT_PERCENT // 100
    if used["number"] >= free:
        oldest = today.order_by("-sent_at")[free - 1 : free].values_list("sent_at", flat=True)[0]
        error = SmsBudgetSpent if used["number"] >= most else SmsReserved
        raise error(retry_after=_until(oldest, seconds))


def hand_over(message: SmsMessage, *, tenant_id: UUID, to: str, body: str) -> None:
    """Give the message to the gateway. Call it outside the tenant: a gateway takes seconds, and connections are few.

    Raises SmsUnavailable (503); the message then does not count against a second try.
    """
    try:
        gateway().send(to=to, body=body, key=str(uuid4()))
    except NotSent as problem:
        with in_tenant(tenant_id, Purpose.SIGN_IN):
            SmsMessage.objects.filter(pk=message.pk).update(failed=True)
        SENT.labels("failed").inc()
        log.warning("sms_not_sent", reason=problem.reason, country_prefix=message.country_prefix)
        raise SmsUnavailable from problem
    SENT.labels("sent").inc()
    with in_tenant(tenant_id, Purpose.SIGN_IN):
        _watch_conversion(message.country_prefix)


def convert(user_id: UUID) -> None:
    """Note that the code in the user's newest message was used."""
    newest = SmsMessage.objects.filter(user_id=user_id).order_by("-sent_at").values("pk")[:1]
    SmsMessage.objects.filter(pk__in=newest).update(converted_at=now())


def _watch_conversion(country_prefix: str) -> None:
    """Raise the alarm when many messages go to a country and few of their codes are used: a sign of toll fraud (pumping)."""
    moment = now()
    counted = SmsMessage.objects.filter(
        country_prefix=country_prefix, failed=False, sent_at__gt=moment - timedelta(days=1), sent_at__lt=moment - _YOUNG
    ).aggregate(sent=Count("id"), used=Count("converted_at"))
    if counted["sent"] < settings.SMS_ALARM_MESSAGES:
        return
    if counted["used"] * 100 >= counted["sent"] * settings.SMS_ALARM_PERCENT:
        return
    # Once an hour for each country of a tenant, to avoid repetition.
    key = f"{current_tenant().tenant_id}:{country_prefix}"
    if ratelimit.count(group="sms_alarm", key=key, limit=1, period=3600).limited:
        return
    ALARMS.inc()
    log.warning("sms_conversion_low", country_prefix=country_prefix, **counted)
    record_for_tenant("sms.conversion_low", outcome="failed", details={"country_prefix": country_prefix, **counted})
