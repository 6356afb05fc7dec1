"""Backup codes: 80 random bits in Crockford's base 32, shown once, stored as a keyed digest."""

import re
import secrets

from identity_platform.api.typed_text import compact
from identity_platform.crypto import keyed_digest

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's, without I, L, O, U
HOW_MANY = 10
_LENGTH = 16  # 16 characters of 5 bits
_SPELLING = re.compile(f"[{ALPHABET}]{{{_LENGTH}}}")
# Letters that are read as a digit (Crockford's decoding table).
_MISREAD = str.maketrans("OIL", "011")


def new_codes() -> list[str]:
    """Return ten new codes, `xxxx-xxxx-xxxx-xxxx`."""
    return [_dashed("".join(secrets.choice(ALPHABET) for _ in range(_LENGTH))) for _ in range(HOW_MANY)]


def _dashed(code: str) -> str:
    return "-".join(code[start : start + 4] for start in range(0, _LENGTH, 4))


def normalised(text: str) -> str | None:
    """Return the code without dashes and blanks, in upper case and ASCII, or None if it does not have the form of one."""
    code = compact(text).replace("-", "")
    code = code.upper().translate(_MISREAD) if code.isascii() else ""
    return code if _SPELLING.fullmatch(code) else None


def digest(code: str, *, data_key: bytes, user_id: object) -> bytes:
    """Return the stored form of a normalised code, bound to its user: a copied row is useless to another user."""
    return keyed_digest(f"{user_id}:{code}", key=data_key, purpose="backup code")
