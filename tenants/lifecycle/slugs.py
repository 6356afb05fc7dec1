"""Slugs for new tenants: made of a name, free, and not reserved."""

import re
import secrets
import unicodedata
from typing import Final

from identity_platform.audit.chain import PLATFORM
from tenants.addresses import former_slugs
from tenants.errors import SlugTaken
from tenants.models import Tenant

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


_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A generated slug gets a random suffix when it is taken.
SLUG_TRIES = 8


def is_reserved(slug: str) -> bool:
    """Return whether commands use this word for something else: the platform's audit trail, or a tenant's id."""
    return slug == PLATFORM or _ID.fullmatch(slug) is not None


def slugs_for(name: str) -> list[str]:
    """Return slugs made of the name, the best first, without reserved ones. A tenant can have any of them."""
    generated = slug_of(name)
    suffixed = [f"{generated[:45]}-{secrets.token_hex(2)}" for _ in range(SLUG_TRIES - 1)]
    proposed = suffixed if is_reserved(generated) else [generated, *suffixed]
    reserved = former_slugs.reserved(proposed)
    return [slug for slug in proposed if slug not in reserved]


def propose_slug(name: str) -> str:
    """Return a slug made of the name that no tenant has now. Raises SlugTaken."""
    proposed = slugs_for(name)
    taken = set(Tenant.objects.filter(slug__in=proposed).values_list("slug", flat=True))
    for slug in proposed:
        if slug not in taken:
            return slug
    raise SlugTaken
