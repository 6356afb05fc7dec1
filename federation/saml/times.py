"""Times in SAML documents: UTC with `Z` (SAML 2.0 Core section 1.3.3)."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

# Fractions beyond microseconds are cut.
_TIME: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,12}))?Z")
# A range in which a tolerance can be added.
_YEARS: Final = range(1970, 9000)


def read_time(text: str) -> datetime | None:
    """Return the time as an aware datetime, or None if it has another form."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        return None
    try:
        moment = datetime.fromisoformat(parts[1]).replace(tzinfo=UTC)
    except ValueError:
        return None
    if moment.year not in _YEARS:
        return None
    return moment + timedelta(microseconds=int((parts[2] or "0")[:6].ljust(6, "0")))


def write_time(moment: datetime) -> str:
    """Return an aware time in whole seconds."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
