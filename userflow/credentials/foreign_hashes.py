"""Password hashers for imported hashes of other systems: bcrypt, scrypt, PBKDF2 and argon2 in their usual spellings.

They only verify: the next sign-in replaces the hash by one of the platform's. Django finds a hasher by the text before the
first `$`, which PHC strings (`$scrypt$…`) and bcrypt (`$2b$…`) do not have; `identify` goes by the whole form instead.

A hash states its own cost, so an import could make every sign-in of a user take minutes or gigabytes and hold up other
tenants. The limits bound one verification to about half a second of a core. They leave room for the defaults of the
libraries and OWASP's figures (Password Storage Cheat Sheet). A hash beyond them, or one that no library verifies, is not
recognised.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

import bcrypt
from django.contrib.auth.hashers import BasePasswordHasher

from identity_platform.crypto import argon2id

MAX_BCRYPT_COST = 13
# 128 * r * n bytes are the memory of one lane; the p lanes are filled one after another.
MAX_SCRYPT_WORK = 128 * 1024 * 1024
MAX_SCRYPT_LANES = 16
# Rounds of all blocks of the digest together: each block costs all the rounds again (RFC 8018 section 5.2).
MAX_PBKDF2_ROUNDS = {"sha1": 1_500_000, "sha256": 1_250_000, "sha512": 1_000_000}
MAX_ARGON2_KIB = 256 * 1024
# KiB that are filled, over all passes.
MAX_ARGON2_WORK = 384 * 1024
MAX_ARGON2_LANES = 8
MAX_SALT_BYTES, MIN_DIGEST_BYTES, MAX_DIGEST_BYTES = 128, 16, 128

_B64 = r"[A-Za-z0-9+/._-]+={0,2}"
Check = Callable[[bytes], bool]


class ForeignHasher(BasePasswordHasher):
    """A hasher that verifies the hashes of another system and creates none."""

    def check_of(self, encoded: str) -> Check | None:
        """Return a function that compares a password with the hash; None for another form or too high a cost.

        Raises ValueError for base64 that cannot be decoded.
        """
        raise NotImplementedError

    def verify(self, password: str, encoded: str) -> bool:
        """Return whether the password is the one that was hashed; False for a hash that cannot be verified."""
        try:
            check = self.check_of(encoded)
            return check is not None and check(password.encode("utf-8", "surrogatepass"))
        except ValueError:
            # A library is stricter than the patterns here, so no password matches.
            return False

    def must_update(self, encoded: str) -> bool:
        """Return True: a sign-in always replaces the hash."""
        return True


class BcryptHasher(ForeignHasher):
    algorithm = "bcrypt"
    # The last character of the salt holds two bits of it; the library rejects one with more.
    _FORM = re.compile(
        r"(?:bcrypt\$)?(?P<hash>\$2[abxy]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31})"
    )

    def check_of(self, encoded: str) -> Check | None:
        form = self._FORM.fullmatch(encoded)
        if form is None or not 4 <= int(form["cost"]) <= MAX_BCRYPT_COST:
            return None
        # 2x and 2y are PHP's names for what 2a and 2b are elsewhere (crypt_blowfish 1.1); for UTF-8 they agree.
        stored = form["hash"].replace("$2x$", "$2b$", 1).replace("$2y$", "$2b$", 1).encode()
        # bcrypt ignores bytes after a NUL or beyond 72; the library rejects what other implementations cut.
        return lambda password: bcrypt.checkpw(password.split(b"\0")[0][:72], stored)


class Argon2Hasher(ForeignHasher):
    algorithm = "argon2"
    # Django, and so the platform's own export, writes `argon2` in front of the PHC string.
    _FORM = re.compile(
        r"(?:argon2)?\$argon2(?:id|i|d)\$(?:v=(?:16|19)\$)?m=(?P<m>[0-9]{1,7}),t=(?P<t>[0-9]{1,3}),p=(?P<p>[0-9]{1,2})"
        rf"\$(?P<salt>{_B64})\$(?P<hash>{_B64})"
    )

    def check_of(self, encoded: str) -> Check | None:
        form = self._FORM.fullmatch(encoded)
        if form is None:
            return None
        kib, passes, lanes = int(form["m"]), int(form["t"]), int(form["p"])
        # RFC 9106 section 3.1: at least 8 KiB a lane, and a salt of 8 bytes as the reference implementation asks for.
        valid = passes >= 1 and 1 <= lanes <= MAX_ARGON2_LANES and 8 * lanes <= kib <= MAX_ARGON2_KIB
        salt, digest = _decoded(form["salt"]), _decoded(form["hash"])
        if not valid or kib * passes > MAX_ARGON2_WORK or len(salt) < 8 or not _fits(salt, digest):
            return None
        return lambda password: argon2id.by_argon2_cffi(encoded.removeprefix("argon2").encode(), password)


class ScryptHasher(ForeignHasher):
    algorithm = "scrypt"
    _PHC = re.compile(
        r"\$scrypt\$ln=(?P<ln>[0-9]{1,2}),r=(?P<r>[0-9]{1,3}),p=(?P<p>[0-9]{1,3})"
        rf"\$(?P<salt>{_B64})\$(?P<hash>{_B64})"
    )
    _DJANGO = re.compile(
        r"scrypt\$(?P<n>[0-9]{1,8})\$(?P<salt>[^$]{1,128})\$(?P<r>[0-9]{1,3})\$(?P<p>[0-9]{1,3})"
        rf"\$(?P<hash>{_B64})"
    )

    def check_of(self, encoded: str) -> Check | None:
        if form := self._PHC.fullmatch(encoded):
            n, salt = 2 ** int(form["ln"]), _decoded(form["salt"])
        elif form := self._DJANGO.fullmatch(encoded):
            n, salt = int(form["n"]), form["salt"].encode()
        else:
            return None
        r, p, digest = int(form["r"]), int(form["p"]), _decoded(form["hash"])
        # RFC 7914 section 6: n is a power of two and below 2 ** (128 * r / 8).
        valid = n > 1 and n & (n - 1) == 0 and r > 0 and n.bit_length() <= 16 * r and 1 <= p <= MAX_SCRYPT_LANES
        if not valid or 128 * r * n * p > MAX_SCRYPT_WORK or not _fits(salt, digest):
            return None
        memory = 128 * r * (n + p + 2) + 2**20

        def check(password: bytes) -> bool:
            made = hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=memory, dklen=len(digest))
            return hmac.compare_digest(made, digest)

        return check


class Pbkdf2Hasher(ForeignHasher):
    algorithm = "pbkdf2"
    _PHC = re.compile(
        r"\$pbkdf2-(?P<digest>sha1|sha256|sha512)\$(?:i=)?(?P<rounds>[0-9]{1,7})(?:,l=[0-9]{1,3})?"
        rf"\$(?P<salt>{_B64})\$(?P<hash>{_B64})"
    )
    _PASSLIB_SHA1 = re.compile(rf"\$pbkdf2\$(?P<rounds>[0-9]{{1,7}})\$(?P<salt>{_B64})\$(?P<hash>{_B64})")
    _DJANGO = re.compile(
        r"pbkdf2_(?P<digest>sha1|sha256|sha512)\$(?P<rounds>[0-9]{1,7})\$(?P<salt>[^$]{1,128})"
        rf"\$(?P<hash>{_B64})"
    )

    def check_of(self, encoded: str) -> Check | None:
        if form := self._PHC.fullmatch(encoded):
            algorithm, salt = form["digest"], _decoded(form["salt"])
        elif form := self._PASSLIB_SHA1.fullmatch(encoded):
            algorithm, salt = "sha1", _decoded(form["salt"])
        elif form := self._DJANGO.fullmatch(encoded):
            algorithm, salt = form["digest"], form["salt"].encode()
        else:
            return None
        rounds, digest = int(form["rounds"]), _decoded(form["hash"])
        blocks = -(-len(digest) // hashlib.new(algorithm).digest_size)
        if not rounds >= 1 or rounds * blocks > MAX_PBKDF2_ROUNDS[algorithm] or not _fits(salt, digest):
            return None

        def check(password: bytes) -> bool:
            return hmac.compare_digest(hashlib.pbkdf2_hmac(algorithm, password, salt, rounds, len(digest)), digest)

        return check


FOREIGN_HASHERS: Final = (BcryptHasher(), Argon2Hasher(), ScryptHasher(), Pbkdf2Hasher())


def identify(encoded: str) -> ForeignHasher | None:
    """Return the hasher that verifies this hash; None for anything else, or at too high a cost."""
    try:
        return next((hasher for hasher in FOREIGN_HASHERS if hasher.check_of(encoded) is not None), None)
    except ValueError:
        return None


def _decoded(text: str) -> bytes:
    """Decode base64 as it occurs in hashes: with or without padding, URL-safe, or passlib's with a dot for the plus."""
    plain = text.rstrip("=").replace(".", "+").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _fits(salt: bytes, digest: bytes) -> bool:
    # A digest of a few bytes would match by chance.
    return len(salt) <= MAX_SALT_BYTES and MIN_DIGEST_BYTES <= len(digest) <= MAX_DIGEST_BYTES
