"""Places of network addresses in words, from a file of cities in MaxMind's format that the operator provides."""

import logging
from functools import lru_cache
from pathlib import Path
from typing import Final

import maxminddb
from django.conf import settings
from django.utils.translation import get_language

_ENGLISH: Final = "en"

logger = logging.getLogger(__name__)


def place_of(address: str) -> str:
    """Return such as “Berlin, Germany” in the active language, or "" if it is not known.

    The file is GEOIP_DATABASE. A new one that takes its place is read at the next call. If it cannot be read, the log says so:
    no page fails for want of a place.
    """
    if not settings.GEOIP_DATABASE or not address:
        return ""
    file = Path(settings.GEOIP_DATABASE)
    try:
        record = _opened(file, file.stat().st_mtime_ns).get(address)
    except ValueError:
        # Not an address, or one of IPv6 and the file knows IPv4 only.
        return ""
    except (OSError, maxminddb.InvalidDatabaseError):
        logger.exception("GEOIP_DATABASE cannot be read as a file of cities in MaxMind's format.")
        return ""
    return ", ".join(filter(None, (_name(record, "city"), _name(record, "country"))))


@lru_cache(maxsize=1)
def _opened(file: Path, changed_at: int) -> maxminddb.Reader:
    return maxminddb.open_database(file)


def _name(record: object, part: str) -> str:
    """Return the name of a part of a record, {"city": {"names": {"en": "Berlin"}}}, or ""."""
    known = record.get(part) if isinstance(record, dict) else None
    names = known.get("names") if isinstance(known, dict) else None
    if not isinstance(names, dict):
        return ""
    language = (get_language() or _ENGLISH).partition("-")[0]
    return str(names.get(language) or names.get(_ENGLISH) or "")
