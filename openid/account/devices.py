"""The browser and system of a session in words, from its user agent."""

import re
from typing import Final

from django.utils.translation import gettext as _

# The first one that matches: most user agents contain the names of other browsers too. The group is the major version.
_BROWSERS: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("Edge", r"Edg(?:e|A|iOS)?/([0-9]+)"),
        ("Opera", r"OPR/([0-9]+)"),
        ("Samsung Internet", r"SamsungBrowser/([0-9]+)"),
        ("Firefox", r"(?:Firefox|FxiOS)/([0-9]+)"),
        ("Chrome", r"(?:Chrome|CriOS)/([0-9]+)"),
        ("Safari", r"(?:Version/([0-9]+)[0-9.]* (?:Mobile/[0-9A-Za-z]+ )?)?Safari/"),
    )
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
# A program that is no browser, such as `okhttp/4.12.0`.
_PROGRAM: Final = re.compile(r"(?!Mozilla/)([A-Za-z][A-Za-z0-9._-]{0,29})/([0-9]{1,5})")


def device_in_words(user_agent: str) -> str:
    """Return such as “Firefox 141 on Windows”, “okhttp 4”, or “Unknown device”."""
    browser = _browser(user_agent)
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    if browser and system:
        return _("%(browser)s on %(system)s") % {"browser": browser, "system": system}
    program = _PROGRAM.match(user_agent)
    return browser or system or (f"{program[1]} {program[2]}" if program else _("Unknown device"))


def _browser(user_agent: str) -> str:
    for name, pattern in _BROWSERS:
        if match := pattern.search(user_agent):
            return f"{name} {match[1]}" if match[1] else name
    return ""
