"""How many mails callers may cause: addresses may be those of other people."""

from django.conf import settings

from identity_platform.api import ratelimit
from identity_platform.api.client_address import network_of
from identity_platform.api.email_addresses import email_key
from identity_platform.audit.origin import Origin, current_origin
from identity_platform.crypto import keyed_digest
from tenants import keys
from userflow.errors import TooManyFromAddress

# Mails that callers can request for addresses that are not theirs.
REQUESTED = frozenset({"address_taken", "admin_email_proof", "email_proof", "invitation", "password_reset"})
# This share of the budget of an address is kept for callers whom its user is known to be.
RESERVED_PERCENT = 20
_BUDGETS = ("mail_address_hour", "mail_address_day")
# Kinds of callers (userflow.accounts.principals) who act on other people.
STAFF = ("admin", "operator")


def limit_mails(group: str, key: str, text: str, *, limits: str = "", counts: bool = True) -> None:
    """Count a mail that a caller causes, against settings.LIMITS[`limits` or `group`], or only check whether it may be sent.

    Raises TooManyFromAddress (429): callers could otherwise send any number of mails to addresses of other people.
    """
    most, seconds = settings.LIMITS[limits or group]
    ask = ratelimit.count if counts else ratelimit.peek
    usage = ask(group=group, key=key, limit=most, period=seconds)
    if usage.limited:
        raise TooManyFromAddress(f"{text} Retry after the time in `Retry-After`.", retry_after=usage.retry_after)


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
