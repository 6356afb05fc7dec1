"""Normalize e-mail addresses and domain names for storage and for comparison."""

import re

import idna

from identity_platform.api.typed_text import trimmed

_DOTS = re.compile("[.\u3002\uff0e\uff61]")
LONGEST_ADDRESS = 254  # RFC 5321 section 4.5.3.1.3, without the angle brackets

_LONGEST_LABEL = 63  # RFC 1035 section 2.3.4

_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL_PART = re.compile(rf"{_ATEXT}(?:\.{_ATEXT})*")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# At least two labels, and the last one is no number: `a@localhost` and `a@10.0.0.1` are not deliverable to a person.
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+(?![0-9]+\Z){_LABEL}")


class DomainInvalid(ValueError):
    """IDNA does not allow this domain name."""


def a_labels(text: str) -> str:
    """Return the domain name in lower-case A-labels (RFC 5891, UTS #46). Raises DomainInvalid."""
    try:
        domain = idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise DomainInvalid from None
    labels, encoded = _DOTS.split(text), domain.split(".")
    # A label that folds to plain ASCII, by full-width letters or the Kelvin sign, only imitates the plain one.
    if len(labels) != len(encoded) or any(
        not label.isascii() and not known.startswith("xn--") for label, known in zip(labels, encoded, strict=True)
    ):
        raise DomainInvalid
    return domain


class AddressInvalid(ValueError):
    """The e-mail address is not accepted."""


def email_address(text: str) -> str:
    """Return the address as stored: local part as given, domain in lower-case A-labels (RFC 5321, RFC 5891, UTS #46).

    Blanks and invisible characters around it are left out. Raises AddressInvalid. The local part is a dot-atom in ASCII:
    dotless i, long s and the Kelvin sign fold onto i, s and k in some readers, so an address with one of them would belong
    to another person there.
    """
    local, at, domain = trimmed(text).rpartition("@")
    if not at or len(local) > 64 or not _LOCAL_PART.fullmatch(local):
        raise AddressInvalid
    address = f"{local}@{_domain(domain)}"
    if len(address) > LONGEST_ADDRESS:
        raise AddressInvalid
    return address


def email_key(address: str) -> str:
    """Return the key that addresses are compared by. Raises AddressInvalid for what `email_address` never returns."""
    if not address.isascii():
        raise AddressInvalid
    return address.lower()


def key_of_spelling(text: str) -> str | None:
    """Return the key of an address with its domain in either form, or None for an invalid address."""
    try:
        return email_key(email_address(text))
    except AddressInvalid:
        return None


def search_key(words: str) -> str:
    """Return words as they occur in `email_key`: in lower case, with whole labels of a domain in the form that is stored."""
    local, at, domain = trimmed(words).lower().rpartition("@")
    return local + at + ".".join(_stored_label(label) for label in _DOTS.split(domain))


def shown_domain(domain: str) -> str:
    """Return a stored domain for readers, in U-labels (RFC 5891). What IDNA does not allow stays as it is."""
    return ".".join(_shown_label(label) for label in domain.split("."))


def shown_address(address: str) -> str:
    """Return a stored address for readers."""
    local, at, domain = address.rpartition("@")
    return local + at + shown_domain(domain)


def _shown_label(label: str) -> str:
    try:
        return idna.ulabel(label) if label.startswith("xn--") else label
    except (idna.IDNAError, UnicodeError):
        return label


def _stored_label(label: str) -> str:
    try:
        return label if label.isascii() or len(label) > _LONGEST_LABEL else a_labels(label)
    except DomainInvalid:
        return label


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
