"""Convert international domain names to A-labels, the form that DNS and certificates use."""

import re

import idna

_DOTS = re.compile("[.\u3002\uff0e\uff61]")


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
