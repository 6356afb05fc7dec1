"""The browser and system of a session in words, from its user agent."""

from typing import Final

from django.utils.translation import gettext as _

# The first one that the user agent contains; most contain the names of others too.
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def device_in_words(user_agent: str) -> str:
    """Return such as “Firefox on Windows”, or “Unknown device”."""
    browser, system = (
        next((name for mark, name in marks if mark in user_agent), "") for marks in (_BROWSERS, _SYSTEMS)
    )
    if browser and system:
        return _("%(browser)s on %(system)s") % {"browser": browser, "system": system}
    return browser or system or _("Unknown device")
