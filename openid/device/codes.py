"""Codes of devices (RFC 8628): the device polls with one, its user types the other into a browser.

A user code has 8 of 20 letters: 34 bits, or 25.6 billion codes. It is valid for 15 minutes, and a network has 30 wrong tries
in ten: while a thousand devices of a tenant wait, one network succeeds about once in 850,000 times ten minutes (section
5.1). A caller who guesses one can only sign a foreign device in to their own account.

Call everything here inside the tenant.
"""

import secrets
from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils.timezone import now

from identity_platform.api.typed_text import compact
from identity_platform.audit.origin import current_origin
from identity_platform.audit.writer import record_for_tenant
from identity_platform.crypto import SealContext, hash_token, keyed_digest, new_token, seal, unseal
from identity_platform.postgresql.row_errors import first_or
from openid.authorization.parameters import Parameters
from openid.errors import RequestExpired
from openid.models import DeviceCode
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession

LASTS: Final = timedelta(minutes=15)
INTERVAL_SECONDS: Final = 5
# Without vowels, so that no code is a word, and without letters and digits that look alike (RFC 8628 section 6.1).
ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ"
USER_CODE_LETTERS: Final = 8
# How many expired codes go with each new one.
PURGED_AT_ONCE: Final = 10


def new_device_code(
    *, client_id: UUID, scopes: tuple[str, ...], audiences: tuple[str, ...], user_agent: str
) -> tuple[str, str]:
    """Store a device that waits for its user; return its device code and its user code, neither of which is stored."""
    DeviceCode.delete_expired(PURGED_AT_ONCE)
    device_code, created = new_token(), False
    while not created:
        user_code = "".join(secrets.choice(ALPHABET) for _ in range(USER_CODE_LETTERS))
        _, created = DeviceCode.objects.get_or_create(
            user_code_digest=_digest(user_code),
            defaults={
                "digest": hash_token(device_code),
                "client_id": client_id,
                "scopes": list(scopes),
                "audiences": list(audiences),
                "address": current_origin().address or "",
                "user_agent": user_agent[:255],
                "interval": INTERVAL_SECONDS,
                "expires_at": now() + LASTS,
            },
        )
    return device_code, in_groups(user_code)


def normalized(typed: str) -> str | None:
    """Return the letters of a user code as typed, without dashes, blanks and difference of case; None if it is no code."""
    letters = "".join(letter for letter in compact(typed).upper() if letter.isalnum())
    return letters if len(letters) == USER_CODE_LETTERS and set(letters) <= set(ALPHABET) else None


def in_groups(user_code: str) -> str:
    """Return a user code as devices and pages show it: WDJB-MJHT."""
    return f"{user_code[:4]}-{user_code[4:]}"


def find_waiting(user_code: str) -> DeviceCode | None:
    """Return the device that waits with this user code, as `normalized` returns it."""
    return _waiting(user_code_digest=_digest(user_code)).first()


def find_device(device: str) -> DeviceCode:
    """Return the device of a request of a browser (`Parameters.device`). Raises RequestExpired."""
    return first_or(_waiting(digest=bytes.fromhex(device)), RequestExpired)


def approve(parameters: Parameters, session: EndUserSession) -> None:
    """Let the device of a browser's request poll its tokens as the user of this session.

    It gets what the page has shown, also if its client may have more by then. Raises RequestExpired if the code has expired or
    another browser has decided.
    """
    _decide(
        parameters.device,
        DeviceCode.Status.APPROVED,
        session=session,
        scopes=list(parameters.scopes),
        audiences=list(parameters.audiences),
    )


def reject(device: str) -> None:
    """Tell the device of a browser's request that access is denied. Raises RequestExpired as `approve`."""
    _decide(device, DeviceCode.Status.DENIED)


def _decide(
    device: str, status: DeviceCode.Status, *, session: EndUserSession | None = None, **granted: list[str]
) -> None:
    row = first_or(_waiting(digest=bytes.fromhex(device)).select_for_update(), RequestExpired)
    DeviceCode.objects.filter(pk=row.pk).update(status=status, session=session, **granted)
    record_for_tenant(
        f"device.{status}",
        target=("client", row.client_id),
        details={"user_id": str(session.user_id) if session else "", "device_address": row.address},
    )


def _waiting(**digest: bytes) -> "QuerySet[DeviceCode]":
    return DeviceCode.objects.filter(**digest, status=DeviceCode.Status.PENDING, expires_at__gt=now())


def keep_approved_codes(earlier: EndUserSession, session: EndUserSession) -> None:
    """Let devices that the user has approved in a session poll their tokens in the session that replaces it."""
    approved = DeviceCode.objects.filter(session_id=earlier.pk, status=DeviceCode.Status.APPROVED)
    approved.update(session=session)


def sealed(user_code: str, device: str) -> str:
    """Return a user code that only the page about this device can show again."""
    blob = seal(user_code.encode(), data_key=END_USERS.data_key(), context=_context(device))
    return b64encode(blob).decode()


def unsealed(stored: str, device: str) -> str:
    """Return a user code that `sealed` has sealed."""
    return unseal(b64decode(stored), data_key=END_USERS.data_key(), context=_context(device)).decode()


def delete_device_codes(*, client_id: UUID, user_id: UUID | None = None) -> None:
    """Delete codes that no device has used: those of a client, or those that the user has approved for it."""
    unused = DeviceCode.objects.filter(client_id=client_id).exclude(status=DeviceCode.Status.USED)
    (unused if user_id is None else unused.filter(session__user_id=user_id)).delete()


def delete_codes_of_client(sender: object, *, client_id: UUID, **_: object) -> None:
    """Delete the unused codes of a client that is deactivated."""
    delete_device_codes(client_id=client_id)


def delete_approved_codes(sender: object, *, user_id: UUID, **_: object) -> None:
    """Delete the codes that a user has approved and no device has used."""
    DeviceCode.objects.filter(status=DeviceCode.Status.APPROVED, session__user_id=user_id).delete()


def _digest(user_code: str) -> bytes:
    return keyed_digest(user_code, key=END_USERS.data_key(), purpose="user code")


def _context(device: str) -> SealContext:
    return SealContext(
        tenant=END_USERS.owner(), table="openid_authorizationrequest", column="parameters", row=f"device {device}"
    )
