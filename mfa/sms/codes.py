"""SMS codes and phone numbers. No database and no gateway."""

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import phonenumbers
from phonenumbers import PhoneNumberFormat, PhoneNumberType

from identity_platform.api.typed_text import compact
from identity_platform.crypto import keyed_digest
from mfa.errors import PhoneRejected

LIFETIME: Final = timedelta(minutes=5)
TRIES: Final = 5
# Attempts of the last 15 minutes still count after a new code was requested.
TRIES_KEPT: Final = timedelta(minutes=15)
# ITU-T E.164: plus sign, country code, at most 15 digits in all; ASCII digits only.
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
# What people write between digits.
_PUNCTUATION = re.compile(r"[().\-/]")
# Toll fraud uses premium, shared-cost, satellite and landline numbers. North America does not distinguish mobile from fixed
# numbers.
_MOBILE = frozenset({PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE_OR_MOBILE})


@dataclass(frozen=True, slots=True)
class MobileNumber:
    """A number that may receive codes."""

    e164: str
    country_prefix: str

    @property
    def last_four(self) -> str:
        return self.e164[-4:]

    @property
    def display(self) -> str:
        """What responses show of it."""
        return f"***-***-{self.last_four}"


def typed_number(text: str) -> str:
    """Return a number as `mobile_number` takes it, from what people type or paste into a page.

    The API takes the E.164 form only.
    """
    return _PUNCTUATION.sub("", compact(text))


def mobile_number(text: str, *, countries: Collection[str] | None) -> MobileNumber:
    """Return the number if it is a mobile one of these countries (ISO 3166; None: all). Raises PhoneRejected (400)."""
    if not _E164.fullmatch(text):
        raise _rejected("Write + and the country code, then the number, such as +447400123456.")
    try:
        parsed = phonenumbers.parse(text, None)
    except phonenumbers.NumberParseException:
        raise _rejected(
            "No country has this code. Write + and the country code, then the number, such as +447400123456."
        ) from None
    if not phonenumbers.is_valid_number(parsed):
        raise _rejected(
            "There is no such number in its country. Check the digits; a complete number is, for example, +447400123456."
        )
    if phonenumbers.format_number(parsed, PhoneNumberFormat.E164) != text:
        # The parser also accepts a national prefix; with it one phone would have several numbers.
        raise _rejected(
            "Leave out the 0 or other prefix for calls within the country: +447400123456, not +4407400123456."
        )
    if phonenumbers.number_type(parsed) not in _MOBILE:
        raise _rejected("Only mobile numbers receive codes.")
    if countries is not None and phonenumbers.region_code_for_number(parsed) not in countries:
        raise _rejected("Codes are not sent to this country.")
    return MobileNumber(text, str(parsed.country_code))


def _rejected(says: str) -> PhoneRejected:
    return PhoneRejected(details={"phone_number": [says]})


def new_code() -> str:
    """Return six random digits."""
    return f"{secrets.randbelow(1_000_000):06d}"


def code_digest(code: str, *, data_key: bytes, user_id: object, purpose: str, number_digest: bytes) -> bytes:
    """Return the stored form of a code: bound to its user, purpose and number, useless without the key."""
    value = f"{user_id}:{purpose}:{number_digest.hex()}:{code}"
    return keyed_digest(value, key=data_key, purpose="sms code")


def number_digest(number: str, *, data_key: bytes) -> bytes:
    """Return the digest that finds a number and keeps it unique. Without the key, a stolen table does not reveal numbers."""
    return keyed_digest(number, key=data_key, purpose="phone number")
