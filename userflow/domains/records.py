"""The TXT record that proves a domain, and its look-up."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import dns.exception
import dns.nameserver
import dns.resolver
from django.conf import settings

# A slow name server holds a thread.
LIFETIME_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 2.0
# Of a record's values in a response.
SHOWN: Final = 5


class LookupOutcome(StrEnum):
    """What a look-up has found. Without an answer nothing is known about the record."""

    RECORD = "record"
    OTHERS = "others"
    NO_ANSWER = "no_answer"


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The result, with the values of other TXT records of this name."""

    outcome: LookupOutcome
    values: tuple[str, ...] = ()


def record_name(domain: str) -> str:
    """Return the name of the TXT record."""
    return f"_identity-platform.{domain}"


def record_value(token: str) -> str:
    """Return the value of the TXT record."""
    return f"identity-verification={token}"


def look_up(domain: str, token: str) -> LookupResult:
    """Look the record up. All TXT records of the name count, as one name may have several (RFC 1464).

    Without an answer of a name server, because of a timeout or a broken zone, the result is NO_ANSWER.
    """
    try:
        answers = _resolver().resolve(f"{record_name(domain)}.", "TXT", lifetime=LIFETIME_SECONDS, search=False)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return LookupResult(LookupOutcome.OTHERS)
    except (dns.exception.DNSException, OSError):
        return LookupResult(LookupOutcome.NO_ANSWER)
    # A value longer than 255 bytes is several strings (RFC 7208 section 3.3).
    values = tuple(b"".join(record.strings).decode("utf-8", "replace").strip() for record in answers)
    if record_value(token) in values:
        return LookupResult(LookupOutcome.RECORD)
    return LookupResult(LookupOutcome.OTHERS, tuple(value[:255] for value in values[:SHOWN]))


def _resolver() -> dns.resolver.Resolver:
    resolver = dns.resolver.Resolver(configure=not settings.DNS_RESOLVERS)
    if settings.DNS_RESOLVERS:
        resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in settings.DNS_RESOLVERS]
    resolver.timeout = ANSWER_SECONDS
    return resolver
