"""Password hashes that other systems made: bcrypt, scrypt, PBKDF2 and argon2 in their usual spellings.

They come in with imported users, verify at the next sign-in and are replaced by a hash of ours then. A hash states its
own cost, so whoever can import one could make every sign-in of that user eat minutes or gigabytes: costs beyond the
ceilings here are not recognised at all.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

import argon2
import bcrypt

LARGEST_BCRYPT_COST = 15
LARGEST_SCRYPT_BYTES = 256 * 1024 * 1024
MOST_PBKDF2_ROUNDS = 5_000_000
LARGEST_ARGON2_KIB = 256 * 1024
MOST_ARGON2_PASSES = 20
LONGEST_SALT, LONGEST_DIGEST = 128, 128

_B64 = r"[A-Za-z0-9+/._-]+={0,2}"
_BCRYPT = re.compile(r"(?:bcrypt\$)?(?P<hash>\$2[abxy]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53})")
# Django, and so our own export, writes `argon2` in front of the PHC string.
_ARGON2 = re.compile(
    rf"(?:argon2)?\$argon2(?:id|i|d)\$(?:v=(?:16|19)\$)?m=(?P<m>[0-9]{{1,7}}),t=(?P<t>[0-9]{{1,3}}),p=(?P<p>[0-9]{{1,2}})"
    rf"\${_B64}\${_B64}"
)
_PHC_SCRYPT = re.compile(
    rf"\$scrypt\$ln=(?P<ln>[0-9]{{1,2}}),r=(?P<r>[0-9]{{1,3}}),p=(?P<p>[0-9]{{1,3}})\$(?P<salt>{_B64})\$(?P<hash>{_B64})"
)
_DJANGO_SCRYPT = re.compile(
    rf"scrypt\$(?P<n>[0-9]{{1,8}})\$(?P<salt>[^$]{{1,128}})\$(?P<r>[0-9]{{1,3}})\$(?P<p>[0-9]{{1,3}})\$(?P<hash>{_B64})"
)
_PHC_PBKDF2 = re.compile(
    rf"\$pbkdf2-(?P<digest>sha1|sha256|sha512)\$(?:i=)?(?P<rounds>[0-9]{{1,7}})(?:,l=[0-9]{{1,3}})?"
    rf"\$(?P<salt>{_B64})\$(?P<hash>{_B64})"
)
_PASSLIB_SHA1 = re.compile(rf"\$pbkdf2\$(?P<rounds>[0-9]{{1,7}})\$(?P<salt>{_B64})\$(?P<hash>{_B64})")
_DJANGO_PBKDF2 = re.compile(
    rf"pbkdf2_(?P<digest>sha1|sha256|sha512)\$(?P<rounds>[0-9]{{1,7}})\$(?P<salt>[^$]{{1,128}})\$(?P<hash>{_B64})"
)

Check = Callable[[bytes], bool]


def kind_of(encoded: str) -> str | None:
    """`bcrypt`, `scrypt`, `pbkdf2` or `argon2` when the string is such a hash at a cost that we take; else None."""
    found = _reader(encoded)
    return found[0] if found else None


def verify(password: str, encoded: str) -> bool:
    """Whether the password is the one that was hashed; False for anything that is no hash of a known kind."""
    found = _reader(encoded)
    return bool(found and found[1](password.encode("utf-8", "surrogatepass")))


def _reader(encoded: str) -> tuple[str, Check] | None:
    for read in _READERS:
        try:
            if found := read(encoded):
                return found
        except (ValueError, binascii.Error):
            return None
    return None


def _bcrypt(encoded: str) -> tuple[str, Check] | None:
    form = _BCRYPT.fullmatch(encoded)
    if form is None or not 4 <= int(form["cost"]) <= LARGEST_BCRYPT_COST:
        return None
    # 2x and 2y are PHP's names for what 2a and 2b are elsewhere (crypt_blowfish 1.1); for UTF-8 they agree.
    stored = form["hash"].replace("$2x$", "$2b$", 1).replace("$2y$", "$2b$", 1).encode()
    # bcrypt never looked beyond 72 bytes or a NUL; the library refuses what others silently cut.
    return "bcrypt", lambda password: bcrypt.checkpw(password.split(b"\0")[0][:72], stored)


def _argon2(encoded: str) -> tuple[str, Check] | None:
    form = _ARGON2.fullmatch(encoded)
    if form is None or int(form["m"]) > LARGEST_ARGON2_KIB or not 1 <= int(form["t"]) <= MOST_ARGON2_PASSES:
        return None

    def check(password: bytes) -> bool:
        try:
            return argon2.PasswordHasher().verify(encoded.removeprefix("argon2"), password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False

    return "argon2", check


def _scrypt(encoded: str) -> tuple[str, Check] | None:
    if form := _PHC_SCRYPT.fullmatch(encoded):
        n, salt = 2 ** int(form["ln"]), _decoded(form["salt"])
    elif form := _DJANGO_SCRYPT.fullmatch(encoded):
        n, salt = int(form["n"]), form["salt"].encode()
    else:
        return None
    r, p, wanted = int(form["r"]), int(form["p"]), _decoded(form["hash"])
    needs = 128 * r * n
    sane = n > 1 and n & (n - 1) == 0 and r > 0 and p > 0
    if not sane or needs * p > LARGEST_SCRYPT_BYTES * 4 or needs > LARGEST_SCRYPT_BYTES or not _fits(salt, wanted):
        return None

    def check(password: bytes) -> bool:
        made = hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=2 * needs + 2**20, dklen=len(wanted))
        return hmac.compare_digest(made, wanted)

    return "scrypt", check


def _pbkdf2(encoded: str) -> tuple[str, Check] | None:
    if form := _PHC_PBKDF2.fullmatch(encoded):
        digest, salt = form["digest"], _decoded(form["salt"])
    elif form := _PASSLIB_SHA1.fullmatch(encoded):
        digest, salt = "sha1", _decoded(form["salt"])
    elif form := _DJANGO_PBKDF2.fullmatch(encoded):
        digest, salt = form["digest"], form["salt"].encode()
    else:
        return None
    rounds, wanted = int(form["rounds"]), _decoded(form["hash"])
    if not 1 <= rounds <= MOST_PBKDF2_ROUNDS or not _fits(salt, wanted):
        return None

    def check(password: bytes) -> bool:
        return hmac.compare_digest(hashlib.pbkdf2_hmac(digest, password, salt, rounds, len(wanted)), wanted)

    return "pbkdf2", check


def _decoded(text: str) -> bytes:
    """Base64 as it is met in hashes: with or without padding, url-safe, or passlib's with a dot for the plus."""
    plain = text.rstrip("=").replace(".", "+").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _fits(salt: bytes, wanted: bytes) -> bool:
    # A digest of a few bytes would be met by chance.
    return len(salt) <= LONGEST_SALT and 16 <= len(wanted) <= LONGEST_DIGEST


_READERS: Final = (_bcrypt, _argon2, _scrypt, _pbkdf2)
