"""Remove what keyboards and clipboards add to what people type and paste. Passwords never come here.

Addresses, phone numbers, codes and names each have one function that starts with one of these, here or in an app.
"""

import re
import unicodedata

# ASCII only: `\d` matches the digits of other scripts.
SIX_DIGITS = re.compile("[0-9]{6}")
# Full-width forms of ASCII (Unicode, Halfwidth and Fullwidth Forms), which East Asian keyboards type.
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
# Not in the category of dashes: the minus sign, the hyphen bullet, and the long vowel mark of Japanese keyboards.
_MORE_DASHES = "\u2212\u2043\u30fc\uff70"


def trimmed(text: str) -> str:
    """Return the text without blanks (category Zs) and format characters (Cf) around it.

    Format characters are invisible: zero-width spaces, byte order marks, marks of writing direction. Inside the text they
    stay, and so do control characters everywhere: callers reject them.
    """
    start, end = 0, len(text)
    while start < end and _is_invisible(text[start]):
        start += 1
    while end > start and _is_invisible(text[end - 1]):
        end -= 1
    return text[start:end]


def compact(text: str) -> str:
    """Return the text without blanks and format characters, with ASCII in place of digits of other scripts and dashes."""
    return "".join(_ascii(character) for character in text.translate(_FULL_WIDTH) if not _is_invisible(character))


def six_digits(text: str) -> str | None:
    """Return a code of six digits as typed or pasted into a page, or None for anything else.

    The API takes the six ASCII digits only (the serializer field `SixDigits`).
    """
    code = compact(text).replace("-", "")
    return code if SIX_DIGITS.fullmatch(code) else None


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in ("Cf", "Zs")


def _ascii(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.decimal(character))
    return "-" if category == "Pd" or character in _MORE_DASHES else character
