"""Password hashes that other systems made: bcrypt, scrypt, PBKDF2 and argon2 in their usual spellings.

They come in with imported users, verify at the next sign-in and are replaced by a hash of ours then. A hash states its
own cost, so whoever can import one could make every sign-in of that user eat minutes or gigabytes, and keep other
tenants' people waiting. The ceilings bound the work of one to about half a second of a core; they leave room for
the defaults of the libraries and OWASP's figures (Password Storage Cheat Sheet). What is beyond them, or what no library
would verify, is not recognised at all.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

import bcrypt

from identity_platform.crypto import argon2id

LARGEST_BCRYPT_COST = 13
# 128 * r * n bytes are the memory of one lane; the p lanes are filled one after another.
MOST_SCRYPT_WORK = 128 * 1024 * 1024
MOST_SCRYPT_LANES = 16
# Rounds of all blocks of the digest together: each block costs all the rounds again (RFC 8018 section 5.2).
MOST_PBKDF2_ROUNDS = {"sha1": 1_500_000, "sha256": 1_250_000, "sha512": 1_000_000}
LARGEST_ARGON2_KIB = 256 * 1024
# KiB that are filled, over all passes.
MOST_ARGON2_WORK = 384 * 1024
MOST_ARGON2_LANES = 8
LONGEST_SALT, LONGEST_DIGEST = 128, 128

_B64 = r"[A-Za-z0-9+/._-]+={0,2}"
# The last letter of the salt holds two bits of it; the library rejects one with more.
_BCRYPT = re.compile(r"(?:bcrypt\$)?(?P<hash>\$2[abxy]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31})")
# Django, and so our own export, writes `argon2` in front of the PHC string.
_ARGON2 = re.compile(
    rf"(?:argon2)?\$argon2(?:id|i|d)\$(?:v=(?:16|19)\$)?m=(?P<m>[0-9]{{1,7}}),t=(?P<t>[0-9]{{1,3}}),p=(?P<p>[0-9]{{1,2}})"
    rf"\$(?P<salt>{_B64})\$(?P<hash>{_B64})"
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
    try:
        return bool(found and found[1](password.encode("utf-8", "surrogatepass")))
    except ValueError:
        # A library is stricter than the patterns here: nobody has that password.
        return False


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
    # bcrypt never looked beyond 72 bytes or a NUL; the library rejects what others silently cut.
    return "bcrypt", lambda password: bcrypt.checkpw(password.split(b"\0")[0][:72], stored)


def _argon2(encoded: str) -> tuple[str, Check] | None:
    form = _ARGON2.fullmatch(encoded)
    if form is None:
        return None
    kib, passes, lanes = int(form["m"]), int(form["t"]), int(form["p"])
    # RFC 9106 section 3.1: at least 8 KiB a lane, and a salt of 8 bytes as the reference implementation asks for.
    sane = passes >= 1 and 1 <= lanes <= MOST_ARGON2_LANES and 8 * lanes <= kib <= LARGEST_ARGON2_KIB
    salt, wanted = _decoded(form["salt"]), _decoded(form["hash"])
    if not sane or kib * passes > MOST_ARGON2_WORK or len(salt) < 8 or not _fits(salt, wanted):
        return None

    def check(password: bytes) -> bool:
        return argon2id.by_argon2_cffi(encoded.removeprefix("argon2").encode(), password)

    return "argon2", check


def _scrypt(encoded: str) -> tuple[str, Check] | None:
    if form := _PHC_SCRYPT.fullmatch(encoded):
        n, salt = 2 ** int(form["ln"]), _decoded(form["salt"])
    elif form := _DJANGO_SCRYPT.fullmatch(encoded):
        n, salt = int(form["n"]), form["salt"].encode()
    else:
        return None
    r, p, wanted = int(form["r"]), int(form["p"]), _decoded(form["hash"])
    # RFC 7914 section 6: n is a power of two and below 2 ** (128 * r / 8).
    sane = n > 1 and n & (n - 1) == 0 and r > 0 and n.bit_length() <= 16 * r and 1 <= p <= MOST_SCRYPT_LANES
    if not sane or 128 * r * n * p > MOST_SCRYPT_WORK or not _fits(salt, wanted):
        return None
    needs = 128 * r * (n + p + 2)

    def check(password: bytes) -> bool:
        made = hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=needs + 2**20, dklen=len(wanted))
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
    blocks = -(-len(wanted) // hashlib.new(digest).digest_size)
    if not rounds >= 1 or rounds * blocks > MOST_PBKDF2_ROUNDS[digest] or not _fits(salt, wanted):
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
