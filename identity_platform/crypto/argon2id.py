"""Create and verify argon2id hashes by the fastest implementation that this machine has.

The wheel of argon2-cffi-bindings is built for any x86 processor. Where a compiler was there, bin/_environment and the
container image have built it once more for AVX2 and for AVX-512. libsodium (PyNaCl) looks at start for both. Their hashes
are the same (RFC 9106). Which is the fastest depends on the processor, so it is measured, once in a process.
"""

import importlib.util
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import argon2
import nacl.exceptions
import nacl.pwhash.argon2id
from argon2.low_level import hash_secret

# Takes the encoded hash and a password.
Verify = Callable[[bytes, bytes], bool]
# Takes a password, a salt and the parameters, and returns the encoded hash.
Hash = Callable[[bytes, bytes, argon2.Parameters], bytes]

# A known answer with the platform's parameters: an implementation that does not tell these two passwords apart, or gives
# another hash, is not used.
_KNOWN: Final = (
    b"$argon2id$v=19$m=19456,t=2,p=1$YWFhYWFhYWFhYWFhYWFhYWFhYWFhYQ$y7k3UPS/DIJed+1k7AzMLcTSA3SzMc/lYh1exBO2+K8"
)
_SALT: Final = b"a" * 22
_RIGHT: Final = b"correct horse"
_WRONG: Final = b"correct horsf"
_TIMED: Final = 3
_LONGEST_FOR_LIBSODIUM: Final = 127
# Where the library is built for extensions of the processor, in a folder each.
_BUILDS: Final = Path(sys.prefix) / "argon2"
_EXTENSIONS: Final = ("avx2", "avx512f")
_PROCESSORS: Final = Path("/proc/cpuinfo")


class Implementation(NamedTuple):
    """The functions of an implementation; `hash` is None if it cannot hash with any salt."""

    verify: Verify
    hash: Hash | None


@dataclass(frozen=True, slots=True)
class Build:
    """The reference implementation as built for an extension of the processor; takes any parameters.

    Its memory comes from malloc, which keeps it for the next hash. libsodium maps and clears 19 MiB for each.
    """

    ffi: Any
    lib: Any

    def verify(self, encoded: bytes, password: bytes) -> bool:
        """Return whether the password matches; False for a hash that is malformed."""
        return bool(self.lib.argon2_verify(encoded, password, len(password), self.lib.Argon2_id) == self.lib.ARGON2_OK)

    def hash(self, password: bytes, salt: bytes, parameters: argon2.Parameters) -> bytes:
        """Return the encoded hash. Raises HashingError."""
        costs = (parameters.time_cost, parameters.memory_cost, parameters.parallelism)
        kind, length = parameters.type.value, parameters.hash_len
        encoded = self.ffi.new("char[]", self.lib.argon2_encodedlen(*costs, len(salt), length, kind) + 1)
        inputs = (password, len(password), salt, len(salt))
        outputs = (self.ffi.NULL, length, encoded, len(encoded))
        status = self.lib.argon2_hash(*costs, *inputs, *outputs, kind, parameters.version)
        if status != self.lib.ARGON2_OK:
            raise argon2.exceptions.HashingError(self.ffi.string(self.lib.argon2_error_message(status)).decode("ascii"))
        return bytes(self.ffi.string(encoded))


def by_argon2_cffi(encoded: bytes, password: bytes) -> bool:
    """The reference implementation; takes any parameters."""
    try:
        return argon2.PasswordHasher().verify(encoded, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def hash_by_argon2_cffi(password: bytes, salt: bytes, parameters: argon2.Parameters) -> bytes:
    """Return the encoded hash by the reference implementation. Raises HashingError."""
    return hash_secret(
        password,
        salt,
        time_cost=parameters.time_cost,
        memory_cost=parameters.memory_cost,
        parallelism=parameters.parallelism,
        hash_len=parameters.hash_len,
        type=parameters.type,
        version=parameters.version,
    )


@cache
def builds() -> dict[str, Build]:
    """Return the builds of the reference implementation by the extension of this processor that each is for."""
    loaded = {extension: _build(extension) for extension in extensions()}
    return {extension: build for extension, build in loaded.items() if build is not None}


def extensions() -> tuple[str, ...]:
    """Return the extensions of this processor for which the reference implementation can be built."""
    flags = _flags_of_processor()
    return tuple(extension for extension in _EXTENSIONS if extension in flags)


def _build(extension: str) -> Build | None:
    """Return the build, or None. Never to be loaded on a processor without the extension, which would end the process."""
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
    return Build(module.ffi, module.lib)


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


def fastest() -> Verify:
    """Return the implementation that takes the least CPU for the known answer. The first call takes 0.1 s."""
    return _by_cpu()[0].verify


def fastest_hash() -> Hash:
    """Return the fastest implementation for new hashes: without a build the wheel, as stock argon2-cffi.

    libsodium takes salts of 16 bytes, Django's have 22. The first call takes 0.1 s.
    """
    return next(implementation.hash for implementation in _by_cpu() if implementation.hash is not None)


@cache
def _by_cpu() -> list[Implementation]:
    """Return the implementations that give the known answer, in the order of their CPU for it."""
    candidates = [
        Implementation(by_libsodium, None),
        Implementation(by_argon2_cffi, hash_by_argon2_cffi),
        *(Implementation(build.verify, build.hash) for build in builds().values()),
    ]
    seconds = {each: min(_seconds(each.verify) for _ in range(_TIMED)) for each in candidates if _knows(each)}
    return sorted(seconds, key=seconds.__getitem__)


def _knows(implementation: Implementation) -> bool:
    verify, hash_function = implementation
    parameters = argon2.extract_parameters(_KNOWN.decode())
    return (
        verify(_KNOWN, _RIGHT)
        and not verify(_KNOWN, _WRONG)
        and (hash_function is None or hash_function(_RIGHT, _SALT, parameters) == _KNOWN)
    )


def _seconds(verify: Verify) -> float:
    began = time.thread_time()
    verify(_KNOWN, _RIGHT)
    return time.thread_time() - began
