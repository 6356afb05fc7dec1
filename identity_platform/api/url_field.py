import ipaddress
import re
from typing import Unpack

from identity_platform.api.email_addresses import DomainInvalid, a_labels
from identity_platform.api.fields import FieldOptions, Text

LONGEST_URL = 2048

_HOST_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_PORT = r"(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_URL_CHARACTERS = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
# RFC 3986 without user info. The host ends at the first of / ? # and nothing else, so no two readers can disagree.
_SCHEME = r"[Hh][Tt][Tt][Pp][Ss]?://"
# Resolvers read 127.1, 0x7f000001 and 2852039166 as IPv4 addresses; only four decimal octets are one here (WHATWG URL,
# "ends in a number").
_NUMBER = r"(?:[0-9]+|0[Xx][0-9A-Fa-f]*)"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_HOST = rf"{_IPV4}|(?:{_HOST_LABEL}\.)*(?!{_NUMBER}\.?(?:[:/?#]|$)){_HOST_LABEL}\.?|\[(?P<ipv6>[0-9A-Fa-f:.]{{2,45}})\]"
_AFTER_HOST = rf"(?::{_PORT})?(?:[/?]{_URL_CHARACTERS})?"
_FRAGMENT = rf"(?P<fragment>#{_URL_CHARACTERS})?"
_URL = re.compile(rf"{_SCHEME}(?:{_HOST}){_AFTER_HOST}{_FRAGMENT}")
# A host with letters beyond ASCII. Full stops of other scripts are left out: readers differ in whether they end a label.
_NOT_BEYOND_ASCII = r"\x00-\x9f\u2028\u2029\u3002\uff0e\uff61"
_NOT_IN_U_LABELS = r"\x00-,/:-@\[-^`{-\x9f\u2028\u2029\u3002\uff0e\uff61"
_INTERNATIONAL_HOST = rf"[^{_NOT_IN_U_LABELS}]*[^{_NOT_BEYOND_ASCII}][^{_NOT_IN_U_LABELS}]*"
_INTERNATIONAL_URL = re.compile(rf"({_SCHEME})({_INTERNATIONAL_HOST})((?:[:/?#].*)?)", re.DOTALL)


class HttpUrl(Text):
    """An absolute http(s) URL (RFC 3986) with a host and without user info; taken as it stands if it is ASCII.

    An international host name is converted to A-labels (RFC 5891, UTS #46), so that every later check, log line and
    connection sees the name that DNS sees.

    User info is rejected because a password in it would be stored and shown in the clear, and because
    https://example.com@evil.test/ reads like example.com.
    """

    default_error_messages = {
        "invalid": "Send an absolute http(s) URL such as https://api.example.com/v1, without user name or password.",
        "fragment": "Send the URL without its fragment (#...).",
    }

    def __init__(
        self, *, allow_fragment: bool = True, max_length: int = LONGEST_URL, **options: Unpack[FieldOptions]
    ) -> None:
        self.allow_fragment = allow_fragment
        super().__init__(max_length=max_length, **options)

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        # Check the length before the pattern: matching takes longer for longer text.
        if self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        url = _with_a_labels(data)
        parts = _URL.fullmatch(url)
        if parts is None or not _is_ipv6(parts["ipv6"]):
            self.fail("invalid")
        if parts["fragment"] is not None and not self.allow_fragment:
            self.fail("fragment")
        return url

    def openapi(self) -> dict[str, object]:
        host = f"(?:{_HOST}|{_INTERNATIONAL_HOST})"
        pattern = f"{_SCHEME}{host}{_AFTER_HOST}{_FRAGMENT if self.allow_fragment else ''}"
        # ECMA 262 spells named groups differently.
        return {"type": "string", "format": "iri", "pattern": f"^{re.sub(r'[?]P<[a-z0-9]+>', '?:', pattern)}$"}


def _with_a_labels(url: str) -> str:
    """Return the URL with an international host name in A-labels. Other URLs stay as they are, invalid ones too."""
    parts = None if url.isascii() else _INTERNATIONAL_URL.fullmatch(url)
    if parts is None:
        return url
    try:
        return f"{parts[1]}{a_labels(parts[2])}{parts[3]}"
    except DomainInvalid:
        return url


def _is_ipv6(text: str | None) -> bool:
    if text is None:
        return True
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
