"""Passwords: argon2id with a bound on how many are hashed at once, and the rules for new ones."""

import unicodedata
from dataclasses import dataclass

import argon2
from argon2.low_level import ARGON2_VERSION
from django.conf import settings
from django.contrib.auth import hashers
from django.contrib.auth.hashers import Argon2PasswordHasher

from identity_platform.crypto import argon2id
from identity_platform.semaphore import Semaphore
from tenants.settings import SHORTEST_PASSWORD
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

    def verify(self, password: str, encoded: str) -> bool:
        """Whether it is the password; by the fastest implementation where the parameters are ours."""
        form = encoded[encoded.index("$") :]
        ours = f"$argon2id$v={ARGON2_VERSION}$m={self.memory_cost},t={self.time_cost},p={self.parallelism}$"
        verify = argon2id.fastest() if form.startswith(ours) else argon2id.by_argon2_cffi
        return verify(form.encode(), password.encode())


@dataclass(frozen=True, slots=True)
class Lane:
    """Hashes of one kind in this worker: so many at the same moment, and so many that hash or wait for it."""

    cores: Semaphore
    waiting: Semaphore

    @classmethod
    def of(cls, *, at_once: int, waiting: int) -> "Lane":
        """A lane whose error is HashersBusy (503)."""
        return cls(*(Semaphore(number, lambda: HashersBusy(retry_after=1)) for number in (at_once, waiting)))


# Every hash takes a core for some 15 ms and 19 MiB. More at once than this worker's share of cores only makes all of
# them slower and starves the requests that hash nothing (performance.md, target 8).
OWN = Lane.of(at_once=settings.HASHES_AT_ONCE, waiting=settings.HASHES_WAITED_FOR)
# A hash that a tenant brought along costs up to half a second: one at a time and with places of its own, so that however
# many come they take no core and no place of those whose hash is the platform's.
FOREIGN = Lane.of(at_once=1, waiting=max(1, settings.HASHES_WAITED_FOR // 2))


def hashed(password: str) -> str:
    """The encoded hash of a new password.

    New passwords are rarer than sign-ins and limited by address: they wait longer and are never turned away at once, so
    that of many registrations of one address at the same moment each gets its own answer.
    """
    with OWN.cores.acquire(wait=settings.NEW_HASH_WAIT_SECONDS):
        return hashers.make_password(_normal(password))


def _normal(password: str) -> str:
    # One keyboard sends an accented letter as one character, another as two (RFC 8265 section 4.2.2).
    return unicodedata.normalize("NFC", password)


_dummy: str | None = None


def matches(password: str, encoded: str | None) -> bool:
    """Whether the password is the one that was hashed. Without a hash the same time is spent and the answer is no.

    Hashes of other systems (`foreign_hashes`) take the time they take: until its first sign-in here such a user can be
    told from one who has signed in before. Accepted, as it tells nothing that an import does not.
    """
    global _dummy
    if _dummy is None:
        _dummy = hashed("nobody has this password")
    usable = bool(encoded) and hashers.is_password_usable(encoded)
    # Longer than any password that could have been set: hashed all the same, cut, so that time tells nothing.
    tried = password[:LONGEST]
    lane = FOREIGN if usable and encoded and _is_dear(encoded) else OWN
    with lane.waiting.acquire(), lane.cores.acquire(wait=settings.PASSWORD_HASH_WAIT_SECONDS):
        if usable and encoded and is_foreign(encoded):
            hasher = foreign_hashes.identify(encoded)
            right = hasher is not None and hasher.verify(tried, encoded)
        else:
            right = hashers.check_password(_normal(tried), encoded if usable and encoded else _dummy)
    return right and usable and len(password) <= LONGEST


def _is_dear(encoded: str) -> bool:
    """Whether it may cost more than a hash of ours: an import may bring our very form with other parameters."""
    if is_foreign(encoded):
        return True
    try:
        stated = argon2.extract_parameters(encoded.removeprefix("argon2"))
    except argon2.exceptions.InvalidHashError:
        return True
    return stated.memory_cost * stated.time_cost > Argon2Hasher.memory_cost * Argon2Hasher.time_cost


def is_foreign(encoded: str) -> bool:
    """Whether another system made this hash."""
    return not encoded.startswith(OWN_FORM)


def is_outdated(encoded: str) -> bool:
    """Whether a hash should be made anew when the password is at hand: foreign, or of weaker parameters than ours."""
    return is_foreign(encoded) or Argon2Hasher().must_update(encoded)


def check_strength(
    password: str, *, least: int = SHORTEST, personal: tuple[str, ...] = (), member: str = "password"
) -> None:
    """Refuse a new password with WeakPassword (NIST SP 800-63B 5.1.1.2: length and a blocklist, no composition rules).

    `least` is the tenant's minimal length, `personal` what must not be the password itself (name, address), `member`
    the body's member that is rejected.
    """
    if not least <= len(password) <= LONGEST:
        raise WeakPassword(details={member: [f"Use between {least} and {LONGEST} characters."]})
    if blocklist.is_personal(password, personal):
        raise WeakPassword(details={member: ["Do not use your own name or address as the password."]})
    if blocklist.is_common(password):
        raise WeakPassword(
            details={member: ["This password is known from breaches or easily guessed: choose another one."]}
        )
