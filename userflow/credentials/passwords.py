"""Passwords: argon2id with a bound on how many are hashed at once, and the rules for new ones."""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import argon2
from argon2.low_level import ARGON2_VERSION
from django.conf import settings
from django.contrib.auth import hashers
from django.contrib.auth.hashers import Argon2PasswordHasher

from identity_platform.crypto import argon2id
from identity_platform.semaphore import Semaphore
from tenants.settings.declarations import SHORTEST_PASSWORD
from userflow.credentials import blocklist, foreign_hashes
from userflow.errors import HashersBusy, WeakPassword

LONGEST = 128
SHORTEST = SHORTEST_PASSWORD
OWN_FORM = "argon2$argon2id$"


class Argon2Hasher(Argon2PasswordHasher):
    """argon2id with OWASP's parameters (Password Storage Cheat Sheet): m = 19 MiB, t = 2, p = 1."""

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        """Return the encoded hash of a new password, as Django's hasher does, with the fastest implementation."""
        encoded = argon2id.fastest_hash()(password.encode(), salt.encode(), self.params())
        return f"{self.algorithm}{encoded.decode('ascii')}"

    def must_update(self, encoded: str) -> bool:
        """Return whether the hash has other parameters than these; the usual form is recognized without decoding it."""
        return _CURRENT_FORM.fullmatch(encoded) is None and super().must_update(encoded)

    def verify(self, password: str, encoded: str) -> bool:
        """Return whether the password matches, with the fastest implementation for hashes with our parameters."""
        verify = argon2id.fastest() if encoded.startswith(_CURRENT) else argon2id.by_argon2_cffi
        return verify(encoded[encoded.index("$") :].encode(), password.encode())


_CURRENT = f"{OWN_FORM}v={ARGON2_VERSION}$m={Argon2Hasher.memory_cost},t={Argon2Hasher.time_cost},p={Argon2Hasher.parallelism}$"
# A salt of 22 characters and a digest of 32 bytes, as Django's hasher makes them.
_CURRENT_FORM = re.compile(re.escape(_CURRENT) + r"[A-Za-z0-9+/]{30}\$[A-Za-z0-9+/]{43}")


@dataclass(frozen=True, slots=True)
class Lane:
    """Limits for hashes of one kind in this worker: how many run at once, how many run or wait, and how long."""

    cores: Semaphore
    waiting: Semaphore
    wait_seconds: float

    @classmethod
    def of(cls, kind: str, *, at_once: int, waiting: int, wait_seconds: float) -> "Lane":
        """Return a lane that raises HashersBusy (503) when it is full, or a hash has waited too long."""
        retry_after = max(1, int(wait_seconds) // 2)

        def limit(name: str, number: int) -> Semaphore:
            return Semaphore(name, number, lambda: HashersBusy(retry_after=retry_after))

        return cls(limit(kind, at_once), limit(f"{kind}_with_waiting", waiting), wait_seconds)

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Wait in order of arrival for a place to hash. Raises HashersBusy."""
        with self.waiting.acquire(), self.cores.acquire(wait=self.wait_seconds):
            yield


# A hash takes a core for some 15 ms and 19 MiB. More at once than this worker's share of cores make all of them slower and
# starve the requests that hash nothing.
OWN = Lane.of(
    "hash",
    at_once=settings.HASHES_AT_ONCE,
    waiting=settings.HASHES_WAITED_FOR,
    wait_seconds=settings.PASSWORD_HASH_WAIT_SECONDS,
)
# A hash that a tenant imported costs up to half a second. These have a lane of their own, so that they take no place from
# the platform's own hashes.
FOREIGN = Lane.of(
    "foreign_hash",
    at_once=settings.FOREIGN_HASHES_AT_ONCE,
    waiting=settings.FOREIGN_HASHES_WAITED_FOR,
    wait_seconds=settings.FOREIGN_HASH_WAIT_SECONDS,
)
RENEWAL = Semaphore("renewed_hash", 1, lambda: HashersBusy(retry_after=1))


def hashed(password: str, *, salt: str | None = None) -> str:
    """Return the encoded hash of a new password, with a random salt by default.

    New passwords are rarer than sign-ins and limited by address, so they wait longer before HashersBusy.
    """
    with OWN.cores.acquire(wait=settings.NEW_HASH_WAIT_SECONDS):
        return hashers.make_password(_normal(password), salt=salt)


def renewed(password: str) -> str:
    """Return the hash that replaces an imported one. Raises HashersBusy: the next sign-in replaces it then.

    One at a time: those of a burst of first sign-ins would stand before the sign-ins of all others in the queue.
    """
    with RENEWAL.acquire(wait=settings.PASSWORD_HASH_WAIT_SECONDS):
        return hashed(password)


def _normal(password: str) -> str:
    # One keyboard sends an accented letter as one character, another as two (RFC 8265 section 4.2.2).
    return unicodedata.normalize("NFC", password)


@cache
def _dummy() -> str:
    return hashed("not a password of any user")


def matches(password: str, encoded: str | None) -> bool:
    """Return whether the password is the one that was hashed. Without a hash, spend the same time and return False.

    Hashes of other systems (`foreign_hashes`) take longer: by the time, such a user can be distinguished until the first
    sign-in here. Accepted: it tells only that the user was imported.
    """
    dummy = _dummy()
    usable = bool(encoded) and hashers.is_password_usable(encoded)
    # A longer password cannot have been set. It is hashed all the same, so that the time tells nothing.
    tried = password[:LONGEST]
    lane = FOREIGN if usable and encoded and _is_dear(encoded) else OWN
    with lane.enter():
        # Without another turn between the forms: a lane that is full then would give the attempt back after a guess.
        right = any(
            _verifies(form, encoded if usable and encoded else dummy)
            for form in _forms(tried, encoded if usable else None)
        )
    return right and usable and len(password) <= LONGEST


def _forms(password: str, encoded: str | None) -> list[str]:
    """Return the Unicode forms of the password that the hash may be of: at most three, and one for letters of ASCII.

    Hashes of ours are of NFC, and so is the one that stands for an unknown user. Another system may have hashed what the
    keyboard sent.
    """
    normal = _normal(password)
    if not encoded or encoded.startswith(_CURRENT):
        return [normal]
    return list(dict.fromkeys((password, normal, unicodedata.normalize("NFD", password))))


def _verifies(password: str, encoded: str) -> bool:
    if not is_foreign(encoded):
        return hashers.check_password(password, encoded)
    hasher = foreign_hashes.identify(encoded)
    return hasher is not None and hasher.verify(password, encoded)


def _is_dear(encoded: str) -> bool:
    """Return whether the hash may cost more than ours: an import may contain argon2id with other parameters."""
    if encoded.startswith(_CURRENT):
        return False
    if is_foreign(encoded):
        return True
    try:
        parameters = argon2.extract_parameters(encoded.removeprefix("argon2"))
    except argon2.exceptions.InvalidHashError:
        return True
    own_hasher = _own_hasher()
    return parameters.memory_cost * parameters.time_cost > own_hasher.memory_cost * own_hasher.time_cost


def is_foreign(encoded: str) -> bool:
    """Return whether another system made this hash."""
    return not encoded.startswith(OWN_FORM)


def is_outdated(encoded: str) -> bool:
    """Return whether the hash should be replaced at the next sign-in: foreign, or with weaker parameters than ours."""
    return is_foreign(encoded) or _own_hasher().must_update(encoded)


def _own_hasher() -> Argon2PasswordHasher:
    hasher = hashers.get_hasher()
    assert isinstance(hasher, Argon2PasswordHasher)
    return hasher


def check_strength(
    password: str, *, least: int = SHORTEST, personal: tuple[str, ...] = (), field: str = "password"
) -> None:
    """Raise WeakPassword for a weak new password (NIST SP 800-63B 5.1.1.2: length and a blocklist, no composition rules).

    `least` is the tenant's minimum length, `personal` the values that must not be the password (name, address), `field` the
    field of the body that the error names.
    """
    if not least <= len(password) <= LONGEST:
        raise WeakPassword(details={field: [f"Use between {least} and {LONGEST} characters."]})
    if blocklist.is_personal(password, personal):
        raise WeakPassword(details={field: ["Do not use your own name or address as the password."]})
    if blocklist.is_common(password):
        raise WeakPassword(
            details={field: ["This password is known from breaches or easily guessed. Choose another one."]}
        )
