"""Six digits by SMS, and the numbers they go to. Knows no database and no gateway."""

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import phonenumbers
from phonenumbers import PhoneNumberFormat, PhoneNumberType

from identity_platform.crypto import keyed_digest
from mfa.errors import PhoneRejected

LIFETIME: Final = timedelta(minutes=5)
TRIES: Final = 5
# Tries of this long ago still count after a new code was asked for.
TRIES_KEPT: Final = timedelta(minutes=15)
# ITU-T E.164: plus sign, country code, at most 15 digits in all; ASCII digits only.
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
# Premium, shared-cost, satellite and landline numbers are where toll fraud lives. North America does not tell mobile
# numbers from fixed ones.
_MOBILE = frozenset({PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE_OR_MOBILE})


@dataclass(frozen=True, slots=True)
class Number:
    """A number that may receive codes."""

    e164: str
    country_prefix: str

    @property
    def last_four(self) -> str:
        return self.e164[-4:]

    @property
    def display(self) -> str:
        """What answers show of it."""
        return f"***-***-{self.last_four}"


def mobile_number(text: str, *, countries: Collection[str] | None) -> Number:
    """The number, if it is a mobile one of these countries (ISO 3166; None: all). PhoneRejected (400) otherwise."""
    if not _E164.fullmatch(text):
        raise _rejected("Send it in E.164 form: plus sign, country code, digits, nothing else.")
    try:
        parsed = phonenumbers.parse(text, None)
    except phonenumbers.NumberParseException:
        raise _rejected("No country has this prefix.") from None
    if not phonenumbers.is_valid_number(parsed):
        raise _rejected("No such number is in use in its country.")
    if phonenumbers.format_number(parsed, PhoneNumberFormat.E164) != text:
        # The parser also reads a prefix that is dialled at home only; with it one phone would be several numbers.
        raise _rejected("Send it without the prefix for calls within its country: +44 7400..., not +44 07400...")
    if phonenumbers.number_type(parsed) not in _MOBILE:
        raise _rejected("Only mobile numbers receive codes.")
    if countries is not None and phonenumbers.region_code_for_number(parsed) not in countries:
        raise _rejected("Codes are not sent to this country.")
    return Number(text, str(parsed.country_code))


def _rejected(says: str) -> PhoneRejected:
    return PhoneRejected(details={"phone_number": [says]})


def new_code() -> str:
    """Six random digits."""
    return f"{secrets.randbelow(1_000_000):06d}"


def code_digest(code: str, *, data_key: bytes, user_id: object, purpose: str, number_digest: bytes) -> bytes:
    """What is stored of a code: bound to its user, purpose and number, useless without the key."""
    value = f"{user_id}:{purpose}:{number_digest.hex()}:{code}"
    return keyed_digest(value, key=data_key, purpose="sms code")


def number_digest(number: str, *, data_key: bytes) -> bytes:
    """By this a tenant's numbers are found and kept unique; the key keeps a thief of the table from listing them."""
    return keyed_digest(number, key=data_key, purpose="phone number")
