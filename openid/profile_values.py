"""The form of standard claims (OpenID Connect Core section 5.1): what a tenant maps is free text of users and admins."""

import re
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit
from zoneinfo import available_timezones

LONGEST_URL: Final = 2048
LONGEST_TEXT: Final = 255
_URLS: Final = ("profile", "picture", "website")
# A date, a date without its year, or a year.
_BIRTHDATE: Final = re.compile(r"[0-9]{4}(-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]))?")


def standard_value(claim: str, value: object) -> str | None:
    """Return the value if it has the form of the claim, else None: a client library may reject the whole token for it."""
    if not isinstance(value, str) or not value.strip():
        return None
    if claim in _URLS:
        return value if _is_web_address(value) else None
    if claim == "birthdate":
        return value if _BIRTHDATE.fullmatch(value) else None
    if claim == "zoneinfo":
        return value if value in _time_zones() else None
    return value if len(value) <= LONGEST_TEXT else None


def _is_web_address(value: str) -> bool:
    if len(value) > LONGEST_URL or not value.isascii() or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    # Pages show them: javascript: and data: addresses would be dangerous there.
    return parts.scheme in ("https", "http") and bool(parts.hostname) and "@" not in parts.netloc


@lru_cache(maxsize=1)
def _time_zones() -> frozenset[str]:
    return frozenset(available_timezones())
