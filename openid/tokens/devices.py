"""Devices that poll for their tokens (RFC 8628 sections 3.4 and 3.5)."""

from collections.abc import Sequence
from typing import Final

import redis
from django.core.cache import cache
from django.db.models import QuerySet
from django.utils.timezone import now

from identity_platform.api.errors import OAuthError
from identity_platform.crypto import hash_token
from openid.claims import mapped_claims_of
from openid.errors import AccessDenied, AuthorizationPending, DeviceCodeExpired, SlowDown
from openid.models import DeviceCode
from openid.tokens.issuing import Granted, open_application, token_response
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.lookup import TenantContext
from tenants.states import Purpose
from userflow.oauth_errors import InvalidGrant
from userflow.sessions.browser import Device
from userflow.sessions.client_authentication import KnownClient

# Added to the interval of a device that polls too fast (RFC 8628 section 3.5).
SLOWER_BY: Final = 5
SLOWEST: Final = 60
# Polls on time come early by this much when the one before was delayed on its way.
ROOM_SECONDS: Final = 1


def exchange_device_code(
    *, tenant: TenantContext, client: KnownClient, device_code: str, resources: Sequence[str], binding: str = ""
) -> dict[str, object]:
    """Return the response with the tokens of a device that its user has approved. Only one poll gets them.

    Raises AuthorizationPending, SlowDown, AccessDenied (also if the approving session or the consent has ended since),
    DeviceCodeExpired, InvalidGrant (unknown, used, of another client), InvalidTarget, TenantSuspended, TenantBusy.
    """
    with in_tenant(tenant.tenant_id, Purpose.SIGN_IN):
        device_codes = DeviceCode.objects.filter(digest=hash_token(device_code), client_id=client.id)
        with tenant_atomic():
            approved = device_codes.filter(status=DeviceCode.Status.APPROVED, expires_at__gt=now())
            if approved.update(status=DeviceCode.Status.USED):
                granted = _granted(device_codes.select_related("session__user").get(), tenant)
                try:
                    opened = open_application(granted, client=client, resources=resources, binding=binding)
                except InvalidGrant as problem:
                    raise AccessDenied from problem
                return token_response(granted, opened, tenant=tenant, client=client)
        raise _poll(device_codes)


def _granted(row: DeviceCode, tenant: TenantContext) -> Granted:
    assert row.session is not None  # approval sets it, and the row goes with it
    # Of a setting that has grown since the approval, the consent does not cover all.
    mapped = mapped_claims_of(row.scopes, tenant)
    return Granted(
        session=row.session,
        scopes=tuple(row.scopes),
        audiences=tuple(row.audiences),
        id_token_claims=mapped,
        userinfo_claims=mapped,
        device=Device(row.address, row.user_agent),
    )


def _poll(device_codes: QuerySet[DeviceCode]) -> OAuthError:
    """Return the error of a poll that gets no tokens. Only one that comes too early writes: it raises the interval."""
    row = device_codes.first()
    if row is None or row.status == DeviceCode.Status.USED:
        return InvalidGrant("The device code is unknown, used, or of another client.")
    if row.status == DeviceCode.Status.DENIED:
        return AccessDenied()
    if row.expires_at <= now():
        return DeviceCodeExpired()
    interval = min(row.interval + SLOWER_BY, SLOWEST)
    if _is_early(row.digest, row.interval, next_interval=interval):
        if interval > row.interval:
            device_codes.filter(interval=row.interval).update(interval=interval)
        return SlowDown()
    return AuthorizationPending()


def _is_early(digest: bytes | memoryview, interval: int, *, next_interval: int) -> bool:
    """Return whether the device has polled within its interval, and note this poll; False while Valkey is away.

    After an early poll the next one is due after `next_interval`.
    """
    name = f"device_poll:{bytes(digest).hex()}"
    try:
        if cache.add(name, 1, timeout=interval - ROOM_SECONDS):
            return False
        cache.set(name, 1, timeout=next_interval - ROOM_SECONDS)
    except (redis.RedisError, OSError):
        return False  # the interval only saves work
    return True
