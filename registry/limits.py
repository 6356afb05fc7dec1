"""The registry's rate limit (100 calls a minute per tenant by the specification) and its response headers."""

from django.conf import settings

from identity_platform.api import daily_counters
from identity_platform.api.client_address import network_of
from identity_platform.api.errors import TooManyRequests
from identity_platform.api.ratelimit import Usage, count
from identity_platform.audit.origin import current_origin
from userflow.accounts.principals import Principal

# The specification's value, independent of the rest of the window.
RETRY_AFTER_SECONDS = 60
# Daily counters by tenant for the statistics in the console; calls by operators share one field.
CALLS, REFUSED = "registry_calls", "registry_refused"
OPERATORS = "operators"


def count_call(principal: Principal) -> Usage:
    """Count a call for the tenant of the token, never for one that a header names.

    Operators are counted separately, so that they do not use up a tenant's limit. So are callers without permissions here:
    anyone can register as an end user, and must not keep the tenant's back ends from their secrets.
    """
    works_here = principal.tenant_id is not None and any(may.startswith("services:") for may in principal.permissions)
    key = f"tenant:{principal.tenant_id}" if works_here else f"{principal.kind}:{principal.tenant_id}:{principal.id}"
    caller = str(principal.tenant_id) if principal.tenant_id else OPERATORS
    limit, period = settings.LIMITS["registry"]
    daily_counters.add(CALLS, caller)
    usage = count(group="registry", key=key, limit=limit, period=period)
    if usage.limited:
        daily_counters.add(REFUSED, caller)
    return usage


def count_anonymous() -> None:
    """Count a call without a valid token for the caller's address. Raises TooManyRequests over the limit."""
    limit, period = settings.LIMITS["anonymous_registry"]
    key = network_of(current_origin().address)
    if count(group="anonymous_registry", key=key, limit=limit, period=period).limited:
        raise TooManyRequests(retry_after=RETRY_AFTER_SECONDS)


def headers_of(usage: Usage) -> dict[str, str]:
    """Return the three headers of the specification."""
    return {
        "X-RateLimit-Limit": str(usage.limit),
        "X-RateLimit-Remaining": str(usage.remaining),
        "X-RateLimit-Reset": str(usage.reset_at),
    }
