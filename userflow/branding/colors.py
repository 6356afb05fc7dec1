"""Accent colors: contrast with the surfaces of the hosted pages and mails, and the colors derived from them."""

import re
from typing import Final, NamedTuple

COLOR: Final = "#[0-9a-fA-F]{6}"
# WCAG 2.2 success criterion 1.4.3 for text of normal size.
LEAST_CONTRAST: Final = 4.5


class Theme(NamedTuple):
    """Surfaces that the accent color is read on, as in openid/static/openid/pages.css, and the text on the accent color."""

    name: str
    ground: str
    card: str
    on_accent: str
    # Hovered links and buttons become darker on light surfaces, and lighter on dark ones.
    towards: str
    default: str


LIGHT: Final = Theme("light", "#f4f5f7", "#ffffff", "#ffffff", "#000000", "#1d4fd7")
DARK: Final = Theme("dark", "#0f1216", "#191d23", "#0f1216", "#ffffff", "#9db8ff")


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colors, 1 to 21 (WCAG 2.2, definition of contrast ratio)."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def problem_of(color: str, theme: Theme) -> str:
    """Return why the color cannot be the accent color of a theme, or ""."""
    if re.fullmatch(COLOR, color) is None:
        return "Send a color as # and six hexadecimal digits, such as #1d4fd7."
    # Links stand on both surfaces; the text on buttons is one of them or has the same color.
    ratio, surface = min((contrast(color, surface), surface) for surface in (theme.ground, theme.card))
    if ratio >= LEAST_CONTRAST:
        return ""
    # Rounded down: 4.499 must not read 4.50.
    shown = int(ratio * 100) / 100
    other = "darker" if theme is LIGHT else "lighter"
    return (
        f"The contrast with the {theme.name} surface {surface} is {shown:.2f}:1. Choose a {other} color with at least"
        f" {LEAST_CONTRAST}:1."
    )


def accent(color: str, theme: Theme) -> str:
    """Return a stored color if it is one that the theme can have, else the default."""
    return color if color and not problem_of(color, theme) else theme.default


def declarations(color: str, theme: Theme) -> str:
    """Return the custom properties of the stylesheet for a checked color."""
    return (
        f"--accent:{color};--on-accent:{theme.on_accent};--accent-strong:{mixed(color, theme.towards, 0.2)};"
        f"--tint:{mixed(theme.card, color, 0.08)}"
    )


def mixed(color: str, other: str, share: float) -> str:
    """Return a color with this share of another one."""
    pairs = zip(_channels(color), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    """Return the relative luminance (WCAG 2.2)."""
    linear = [_linear(channel / 255) for channel in _channels(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
