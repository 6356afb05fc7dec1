"""E-mail addresses: the one spelling that is stored, and the key that they are compared by."""

import re

from identity_platform.api.domains import DomainInvalid, a_labels

LONGEST_ADDRESS = 254  # RFC 5321 section 4.5.3.1.3, without the angle brackets

_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL_PART = re.compile(rf"{_ATEXT}(?:\.{_ATEXT})*")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# At least two labels, and the last one is no number: `a@localhost` and `a@10.0.0.1` are not deliverable to a person.
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+(?![0-9]+\Z){_LABEL}")


class AddressInvalid(ValueError):
    """An e-mail address that we do not take."""


def email_address(text: str) -> str:
    """The address as we store it: local part as given, domain in lower-case A-labels (RFC 5321, RFC 5891, UTS #46).

    Raises AddressInvalid. The local part is a dot-atom in ASCII: dotless i, long s and the Kelvin sign fold onto i, s
    and k in some readers, so an address with one of them would be another user's there.
    """
    local, at, domain = text.rpartition("@")
    if not at or len(local) > 64 or not _LOCAL_PART.fullmatch(local):
        raise AddressInvalid
    address = f"{local}@{_domain(domain)}"
    if len(address) > LONGEST_ADDRESS:
        raise AddressInvalid
    return address


def email_key(address: str) -> str:
    """What addresses are compared and kept unique by. Raises AddressInvalid for what `email_address` never gives."""
    if not address.isascii():
        raise AddressInvalid
    return address.lower()


def key_of_spelling(text: str) -> str | None:
    """The key of the address that the text spells, with its domain in either form; None where it spells none."""
    try:
        return email_key(email_address(text))
    except AddressInvalid:
        return None


def _domain(text: str) -> str:
    domain = text.lower() if text.isascii() else text
    if not text.isascii() or "xn--" in domain:
        try:
            domain = a_labels(text)
        except DomainInvalid:
            raise AddressInvalid from None
    if len(domain) > 253 or not _DOMAIN.fullmatch(domain):
        raise AddressInvalid
    return domain
