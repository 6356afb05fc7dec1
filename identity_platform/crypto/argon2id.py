"""Compare with an argon2id hash by the fastest implementation that this machine has.

The wheel of argon2-cffi-bindings is built for any x86 processor. Where a compiler was there, bin/_environment and the
container image have built it once more for AVX2 and for AVX-512. libsodium (PyNaCl) looks at start for both. Their hashes
are the same (RFC 9106). Which is the fastest depends on the processor, so it is measured, once in a process.
"""

import importlib.util
import platform
import sys
import time
from collections.abc import Callable
from functools import cache, partial
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
# Where the library is built for extensions of the processor, in a folder each.
_BUILDS: Final = Path(sys.prefix) / "argon2"
_EXTENSIONS: Final = ("avx2", "avx512f")
_PROCESSORS: Final = Path("/proc/cpuinfo")


def by_argon2_cffi(encoded: bytes, password: bytes) -> bool:
    """The reference implementation; takes any parameters."""
    try:
        return argon2.PasswordHasher().verify(encoded, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


@cache
def by_builds() -> dict[str, Verify]:
    """Return the reference implementation as built for each extension that this processor has; takes any parameters.

    Its memory comes from malloc, which keeps it for the next hash. libsodium maps and clears 19 MiB for each.
    """
    flags = _flags_of_processor()
    libraries = {extension: _library(extension) for extension in _EXTENSIONS if extension in flags}
    return {extension: partial(_by_library, library) for extension, library in libraries.items() if library is not None}


def _by_library(library: Any, encoded: bytes, password: bytes) -> bool:
    return bool(library.argon2_verify(encoded, password, len(password), library.Argon2_id) == library.ARGON2_OK)


def _library(extension: str) -> Any:
    """Return the C library, or None. Never to be loaded on a processor without the extension, which would end the process."""
    built = next((_BUILDS / extension / "_argon2_cffi_bindings").glob("_ffi*.so"), None)
    if built is None:
        return None
    # Beside the wheel's own copy: the last part of the name decides which function initializes it.
    spec = importlib.util.spec_from_file_location(f"argon2_{extension}._ffi", built)
    if spec is None or spec.loader is None:
        return None
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError:  # built for another Python or C library
        return None
    return module.lib


def _flags_of_processor() -> frozenset[str]:
    """Return the flags that all cores have; none for another architecture than x86-64."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    try:
        lines = _PROCESSORS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = [frozenset(line.split()) for line in lines if line.startswith("flags")]
    return frozenset.intersection(*flags) if flags else frozenset()


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
    candidates: tuple[Verify, ...] = (by_libsodium, by_argon2_cffi, *by_builds().values())
    seconds_by_candidate = {
        candidate: min(_seconds(candidate) for _ in range(_TIMED)) for candidate in candidates if _knows(candidate)
    }
    return min(seconds_by_candidate, key=seconds_by_candidate.__getitem__)


def _knows(verify: Verify) -> bool:
    return verify(_KNOWN, _RIGHT) and not verify(_KNOWN, _WRONG)


def _seconds(verify: Verify) -> float:
    began = time.thread_time()
    verify(_KNOWN, _RIGHT)
    return time.thread_time() - began
