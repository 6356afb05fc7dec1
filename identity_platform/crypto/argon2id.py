"""Compare with an argon2id hash by the fastest implementation that this machine has.

The wheel of argon2-cffi-bindings is built for any x86 processor. Where a compiler was there, bin/_environment and the
container image have built it once more for AVX2. libsodium (PyNaCl) looks at start for AVX2 and AVX-512. Their hashes are the
same (RFC 9106). Which is the fastest depends on the processor, so it is measured, once in a process.
"""

import importlib.util
import platform
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

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
# Where the library built for AVX2 is.
_FOR_AVX2: Final = Path(sys.prefix) / "argon2-avx2" / "_argon2_cffi_bindings"
_PROCESSORS: Final = Path("/proc/cpuinfo")


def by_argon2_cffi(encoded: bytes, password: bytes) -> bool:
    """The reference implementation; takes any parameters."""
    try:
        return argon2.PasswordHasher().verify(encoded, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def by_avx2_build(encoded: bytes, password: bytes) -> bool:
    """The reference implementation built for AVX2; takes any parameters. Raises RuntimeError if `has_avx2_build` is False.

    Its memory comes from malloc, which keeps it for the next hash. libsodium maps and clears 19 MiB for each.
    """
    library = _avx2_build()
    if library is None:
        raise RuntimeError("There is no build for AVX2.")
    return bool(library.argon2_verify(encoded, password, len(password), library.Argon2_id) == library.ARGON2_OK)


def has_avx2_build() -> bool:
    """Return whether there is a build for AVX2 that this processor can run."""
    return _avx2_build() is not None


@cache
def _avx2_build() -> Any:
    """Return the C library, or None. It is never loaded on an older processor, which would end the process."""
    found = next(_FOR_AVX2.glob("_ffi*.so"), None)
    if found is None or not _has_avx2():
        return None
    # Beside the wheel's own copy: the name decides only which function initializes it.
    spec = importlib.util.spec_from_file_location("argon2_avx2._ffi", found)
    if spec is None or spec.loader is None:
        return None
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError:  # built for another Python or C library
        return None
    return module.lib


def _has_avx2() -> bool:
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        lines = _PROCESSORS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    flags = [line.split() for line in lines if line.startswith("flags")]
    return bool(flags) and all("avx2" in each for each in flags)


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
    """Return the implementation that takes the least CPU for the known answer, of those that know it. Takes 0.1 s, once."""
    candidates = (by_libsodium, by_argon2_cffi, *([by_avx2_build] if has_avx2_build() else []))
    found = {one: min(_seconds(one) for _ in range(_TIMED)) for one in candidates if _knows(one)}
    return min(found, key=found.__getitem__)


def _knows(verify: Verify) -> bool:
    return verify(_KNOWN, _RIGHT) and not verify(_KNOWN, _WRONG)


def _seconds(verify: Verify) -> float:
    began = time.thread_time()
    verify(_KNOWN, _RIGHT)
    return time.thread_time() - began
