"""Slugs generated from names."""

import re
import unicodedata
from typing import Final

LONGEST_SLUG: Final = 50
# Used for a name without a Latin letter or digit, such as a Chinese one.
FALLBACK: Final = "tenant"

# Letters that Unicode does not decompose into ASCII, and the German umlauts, which would lose their second letter.
_LATIN: Final = str.maketrans(
    {
        "ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss",
        "æ": "ae", "œ": "oe", "ø": "o", "ǿ": "o", "ǽ": "ae", "ǣ": "ae",
        "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "ı": "i", "ĸ": "k", "ł": "l", "ŋ": "n", "ŧ": "t",
        "ƀ": "b", "ɓ": "b", "ƈ": "c", "ɖ": "d", "ɗ": "d", "ǝ": "e", "ə": "e", "ɛ": "e", "ƒ": "f", "ǥ": "g", "ɠ": "g",
        "ɣ": "g", "ɨ": "i", "ƙ": "k", "ƚ": "l", "ɲ": "n", "ɔ": "o", "ƥ": "p", "ƭ": "t", "ʉ": "u", "ʊ": "u", "ʋ": "v",
        "ƴ": "y", "ƶ": "z", "ʒ": "z",
    }
)  # fmt: skip


def slug_of(name: str) -> str:
    """Return a slug for a name: ASCII, lower case, words joined by dashes, at most 50 characters.

    `Größe & Söhne` becomes `groesse-soehne`.
    """
    # Composed first, so that a letter followed by a combining mark is found in the table too.
    spelled = unicodedata.normalize("NFC", name).lower().translate(_LATIN)
    plain = unicodedata.normalize("NFKD", spelled).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:LONGEST_SLUG].strip("-") or FALLBACK
