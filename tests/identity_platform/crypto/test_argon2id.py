"""All argon2id libraries give the result of the reference."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from argon2 import Parameters
from argon2.exceptions import HashingError
from argon2.low_level import ARGON2_VERSION, Type, hash_secret
from django.contrib.auth.hashers import Argon2PasswordHasher

from identity_platform.crypto import argon2id
from tenants.entering.context import in_tenant
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import EndUser
from userflow.credentials import passwords
from userflow.credentials.checks import passwords_are_hashed_by_a_build

pytestmark = pytest.mark.usefixtures("production_hashes")

ALL = (argon2id.by_argon2_cffi, argon2id.by_libsodium, *(build.verify for build in argon2id.builds().values()))
HASHES = (argon2id.hash_by_argon2_cffi, *(build.hash for build in argon2id.builds().values()))


class StockHasher(Argon2PasswordHasher):
    """Django's hasher with the parameters of the platform."""

    time_cost, memory_cost, parallelism = 2, 19 * 1024, 1


def test_all_libraries_agree_on_right_wrong_and_broken() -> None:
    encoded = passwords.hashed("correct horse battery").removeprefix("argon2").encode()
    # The timed hash has the parameters of the hashes that the platform creates.
    assert argon2id._KNOWN.startswith(encoded[: encoded.index(b"p=1$") + 4])
    flipped = encoded[:-1] + (b"A" if encoded[-1:] != b"A" else b"Q")
    for verify in ALL:
        assert verify(encoded, b"correct horse battery")
        assert not verify(encoded, b"correct horse batterz")
        assert not verify(encoded, b"")
        assert not verify(flipped, b"correct horse battery")
        assert not verify(encoded[:-4] + b"$", b"correct horse battery")
        assert not verify(b"$argon2id$nonsense", b"correct horse battery")


def test_long_salt_uses_the_other_library() -> None:
    encoded = hash_secret(b"pass phrase", b"s" * 48, 2, 19 * 1024, 1, 32, Type.ID)
    assert len(encoded) > 127
    assert all(verify(encoded, b"pass phrase") and not verify(encoded, b"pass phrasf") for verify in ALL)


def test_fastest_library_passes_the_known_answer() -> None:
    assert argon2id.fastest() in ALL
    assert argon2id.fastest() is argon2id.fastest()
    assert argon2id.fastest_hash() in HASHES
    for response in (True, False):
        assert not argon2id._knows(argon2id.Implementation(lambda encoded, password, response=response: response, None))
    assert argon2id._knows(argon2id.Implementation(argon2id.by_argon2_cffi, argon2id.hash_by_argon2_cffi))
    assert not argon2id._knows(argon2id.Implementation(argon2id.by_argon2_cffi, lambda *inputs: b"$argon2id$other"))


@pytest.mark.parametrize(
    "password", [b"", b"correct horse battery", "pässwörd 🦊".encode(), b"nul \0 inside", b"p" * 128]
)
def test_all_libraries_create_the_same_hash(password: bytes) -> None:
    for salt, time_cost, memory_cost, lanes, length in ((b"s" * 22, 2, 19456, 1, 32), (b"t" * 48, 1, 64, 2, 16)):
        parameters = Parameters(Type.ID, ARGON2_VERSION, len(salt), length, time_cost, memory_cost, lanes)
        expected = hash_secret(password, salt, time_cost, memory_cost, lanes, length, Type.ID)
        assert {hash_function(password, salt, parameters) for hash_function in HASHES} == {expected}


def test_invalid_parameters_raise_hashing_error() -> None:
    parameters = Parameters(Type.ID, ARGON2_VERSION, 4, 32, 2, 19456, 1)
    for hash_function in HASHES:
        with pytest.raises(HashingError, match="Salt is too short"):
            hash_function(b"correct horse battery", b"salt", parameters)


def test_new_hashes_are_those_of_the_stock_hasher() -> None:
    stock, salt = StockHasher(), StockHasher().salt()
    encoded = passwords.hashed("correct horse battery", salt=salt)
    assert encoded == stock.encode("correct horse battery", salt)
    assert stock.verify("correct horse battery", encoded)
    assert not stock.must_update(encoded)
    old = stock.encode("correct horse battery", stock.salt())
    assert passwords.matches("correct horse battery", old)
    assert not passwords.matches("correct horse batterz", old)
    assert not passwords.is_outdated(old)
    assert not passwords.is_outdated(passwords.hashed("correct horse battery"))


def test_new_passwords_are_hashed_by_the_build_that_verifies() -> None:
    called = set()
    sys.setprofile(lambda frame, event, argument: called.add(frame.f_code))
    try:
        passwords.hashed("correct horse battery")
    finally:
        sys.setprofile(None)
    pairs = [(build.verify, build.hash) for build in argon2id.builds().values()]
    assert not pairs or argon2id.Build.hash.__code__ in called
    assert not pairs or (argon2id.fastest(), argon2id.fastest_hash()) in pairs


@pytest.mark.needs("gcc")
def test_builds_are_there_where_they_can_be_built_and_run() -> None:
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    flags = Path("/proc/cpuinfo").read_text().split()
    assert set(argon2id.builds()) == {extension for extension in ("avx2", "avx512f") if headers and extension in flags}
    built = [next(argon2id._BUILDS.glob(f"{extension}/*/_ffi*.so")) for extension in argon2id.builds()]
    assert len({library.read_bytes() for library in built}) == len(built)


@pytest.mark.parametrize(("flags", "loaded"), [("fpu sse sse2", ""), ("fpu avx avx2", "avx2")])
def test_builds_are_not_loaded_on_an_older_processor(tmp_path: Path, flags: str, loaded: str) -> None:
    # In a process of its own, whose /proc/cpuinfo is that of an older processor.
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    program = (
        "from pathlib import Path; from identity_platform.crypto import argon2id;"
        f" argon2id._PROCESSORS = Path({str(tmp_path / 'cpuinfo')!r});"
        " print(*argon2id.builds()); argon2id.fastest()"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("", loaded)
    assert done.stdout.strip() == loaded or not argon2id.builds()


@pytest.mark.parametrize(
    ("flags", "message"),
    [("fpu avx avx2", "without avx2,"), ("fpu avx2 avx512f", "without avx2 and avx512f,"), ("fpu sse sse2", "")],
)
def test_machine_without_builds_uses_the_wheel_and_says_so(tmp_path: Path, flags: str, message: str) -> None:
    # In a process of its own, as installed without a compiler.
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    program = (
        "from pathlib import Path; from identity_platform.crypto import argon2id;"
        " from userflow.credentials.checks import passwords_are_hashed_by_a_build as check;"
        f" argon2id._PROCESSORS = Path({str(tmp_path / 'cpuinfo')!r}); argon2id._BUILDS = Path({str(tmp_path)!r});"
        " assert argon2id.fastest_hash() is argon2id.hash_by_argon2_cffi;"
        " print(*(f'{each.id} {each.level} {each.msg}' for each in check()))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert message in done.stdout
    assert done.stdout.startswith("userflow.I001 20 ") if message else done.stdout == "\n"


@pytest.mark.needs("gcc")
def test_machine_with_builds_has_nothing_to_report() -> None:
    assert passwords_are_hashed_by_a_build() == [] or not argon2id.builds()


def test_login_accepts_imported_hash_of_other_parameters(tenant: TestTenant, api: Api) -> None:
    for salt, lanes in ((b"s" * 48, 1), (b"s" * 16, 2)):
        person = tenant.register()
        encoded = hash_secret(PASSWORD.encode(), salt, 2, 19 * 1024, lanes, 32, Type.ID).decode()
        with in_tenant(tenant.id):
            EndUser.objects.filter(pk=person.id).update(password=f"argon2{encoded}")
        assert tenant.sign_in(person)
