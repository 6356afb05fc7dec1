"""Reject common and breached passwords, and usual variations of them.

The list is the one that Django ships (20,000 passwords out of breaches, by Royce Williams, in the public domain); an
operator adds one with PASSWORD_BLOCKLIST. A list alone is not enough: `Password2026!` is on none. So the password
is also looked up without digits and signs at its ends, without the usual substitutions, backwards and halved. Nothing
leaves the machine.
"""

import itertools
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Final

from django.conf import settings
from django.contrib.auth.password_validation import CommonPasswordValidator

# A longer tail is not decoration: six digits behind a word may be a date.
LONGEST_DECORATION = 6
SHORTEST_WORD = 3
_ROWS: Final = ("qwertyuiop", "asdfghjkl", "zxcvbnm", "qwertzuiop", "yxcvbnm", "azertyuiop", "qsdfghjklm", "1234567890")
_PLAIN = str.maketrans("@4831!|05$7+", "aaeeiiiosstt")


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    words = set(CommonPasswordValidator().passwords)
    if settings.PASSWORD_BLOCKLIST:
        with Path(settings.PASSWORD_BLOCKLIST).open(encoding="utf-8", errors="replace") as lines:
            words.update(line.strip().lower() for line in lines if line.strip())
    return frozenset(words)


def is_common(password: str) -> bool:
    """Return whether the password or a usual variation of it is on the list, or it is a sequence or a repetition."""
    lowered = unicodedata.normalize("NFKC", password).lower()
    return _is_pattern(lowered) or any(form in _known() for form in _forms(lowered))


def is_personal(password: str, words: tuple[str, ...]) -> bool:
    """Return whether the password or a usual variation of it is one of the words (a name, an address)."""
    personal_parts = {part for word in words for part in _parts(word)}
    lowered = unicodedata.normalize("NFKC", password).lower()
    return any(form in personal_parts for form in _forms(lowered))


def _parts(word: str) -> set[str]:
    lowered = unicodedata.normalize("NFKC", word).lower()
    local, _, domain = lowered.partition("@")
    parts = {lowered, local, domain, domain.partition(".")[0], *lowered.split(), lowered.replace(" ", "")}
    return {part for part in parts if len(part) >= SHORTEST_WORD}


def _forms(lowered: str) -> set[str]:
    forms = {lowered, _core(lowered)}
    forms |= {form.translate(_PLAIN) for form in forms}
    forms |= {_core(form) for form in forms}
    for form in list(forms):
        half, odd = divmod(len(form), 2)
        if not odd and form[:half] == form[half:]:
            forms.add(form[:half])
    forms |= {form[::-1] for form in forms}
    return {form for form in forms if len(form) >= SHORTEST_WORD}


def _core(text: str) -> str:
    """Return the text without digits and signs at its ends, if these are few enough."""
    begin, end = 0, len(text)
    while end > begin and not text[end - 1].isalpha():
        end -= 1
    while begin < end and not text[begin].isalpha():
        begin += 1
    return text[begin:end] if len(text) - (end - begin) <= LONGEST_DECORATION else text


def _is_pattern(text: str) -> bool:
    if len(set(text)) <= 2:
        return True
    for size in range(1, min(4, len(text) // 2) + 1):
        if (text[:size] * len(text))[: len(text)] == text:
            return True
    differences = {ord(after) - ord(before) for before, after in itertools.pairwise(text)}
    if differences in ({1}, {-1}):
        return True
    return any(text in line for row in _ROWS for line in (row * 2, (row * 2)[::-1]))
