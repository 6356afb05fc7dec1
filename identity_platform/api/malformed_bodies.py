"""Limit how often an address sends bodies that cannot be read, without a token.

A caller who has not authenticated pays nothing for what the platform does to reject a body. A small body costs less than the
count of it, so an address over its limit may still send well-formed ones; a large one is then not even looked at.
"""

from django.conf import settings

from identity_platform.api import ratelimit
from identity_platform.api.client_address import network_of
from identity_platform.api.errors import ApiError, BodyTooLarge, MalformedBody, TooManyRequests, UnsupportedMediaType
from identity_platform.audit.origin import current_origin

# Larger than what any caller without a token has to send.
LARGE_BYTES = 16 * 1024
_UNREADABLE = (MalformedBody, UnsupportedMediaType, BodyTooLarge)


def check_large_body(size: int) -> None:
    """Raise TooManyRequests (429) for a large body of an address that has sent too many malformed ones, without a token."""
    if size <= LARGE_BYTES or not _is_anonymous():
        return
    most, seconds = settings.LIMITS["malformed"]
    usage = ratelimit.peek(group="malformed", key=_network(), limit=most, period=seconds)
    if usage.limited:
        raise TooManyRequests(retry_after=usage.retry_after)


def counted(error: ApiError) -> ApiError:
    """Return the error, or TooManyRequests instead of one too many of bodies that cannot be read, without a token."""
    if not isinstance(error, _UNREADABLE) or not _is_anonymous():
        return error
    most, seconds = settings.LIMITS["malformed"]
    usage = ratelimit.count(group="malformed", key=_network(), limit=most, period=seconds)
    return TooManyRequests(retry_after=usage.retry_after) if usage.limited else error


def _is_anonymous() -> bool:
    return current_origin().actor_kind == "anonymous"


def _network() -> str:
    address = current_origin().address
    return network_of(address) if address else "local"
