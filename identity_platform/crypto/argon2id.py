"""Comparing with an argon2id hash by the fastest implementation that this machine has.

The wheel of argon2-cffi is built for any x86 processor; libsodium (PyNaCl) looks at start for AVX2 and AVX-512. Their hashes
are the same (RFC 9106), so one may be taken for the other. Which is faster depends on the processor, and on whether
argon2-cffi was built here with more than the wheel has (docs/performance.md), so it is measured: once in a process.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Final

import argon2
import nacl.exceptions
import nacl.pwhash.argon2id

Verify = Callable[[bytes, bytes], bool]

# A known answer with the platform's parameters: who does not tell these two passwords apart is not taken.
_KNOWN: Final = (
    b"$argon2id$v=19$m=19456,t=2,p=1$YWFhYWFhYWFhYWFhYWFhYWFhYWFhYQ$y7k3UPS/DIJed+1k7AzMLcTSA3SzMc/lYh1exBO2+K8"
)
_RIGHT: Final = b"correct horse"
_WRONG: Final = b"correct horsf"
_TIMED: Final = 3
_LONGEST_FOR_LIBSODIUM: Final = 127


def by_argon2_cffi(encoded: bytes, password: bytes) -> bool:
    """The reference implementation; takes any parameters."""
    try:
        return argon2.PasswordHasher().verify(encoded, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def by_libsodium(encoded: bytes, password: bytes) -> bool:
    """libsodium's; takes one lane only. Where memory is missing it answers no."""
    if len(encoded) > _LONGEST_FOR_LIBSODIUM:  # an import may bring a longer salt
        return by_argon2_cffi(encoded, password)
    try:
        return nacl.pwhash.argon2id.verify(encoded, password)
    except nacl.exceptions.InvalidkeyError:
        return False


@cache
def fastest() -> Verify:
    """The implementation that took the least CPU for the known answer, of those that know it. Takes about 0.1 s, once."""
    found = {one: min(_seconds(one) for _ in range(_TIMED)) for one in (by_libsodium, by_argon2_cffi) if _knows(one)}
    return min(found, key=found.__getitem__)


def _knows(verify: Verify) -> bool:
    return verify(_KNOWN, _RIGHT) and not verify(_KNOWN, _WRONG)


def _seconds(verify: Verify) -> float:
    began = time.thread_time()
    verify(_KNOWN, _RIGHT)
    return time.thread_time() - began
