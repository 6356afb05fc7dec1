"""All argon2id libraries give the result of the reference."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from argon2.low_level import Type, hash_secret

from identity_platform.crypto import argon2id
from tenants.entering.context import in_tenant
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import EndUser
from userflow.credentials import passwords

pytestmark = pytest.mark.usefixtures("production_hashes")

ALL = (argon2id.by_argon2_cffi, argon2id.by_libsodium, *argon2id.by_builds().values())


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
    assert not argon2id._knows(lambda encoded, password: True)
    assert not argon2id._knows(lambda encoded, password: False)


@pytest.mark.needs("gcc")
def test_builds_are_there_where_they_can_be_built_and_run() -> None:
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    flags = Path("/proc/cpuinfo").read_text().split()
    assert set(argon2id.by_builds()) == {
        extension for extension in ("avx2", "avx512f") if headers and extension in flags
    }
    built = [next(argon2id._BUILDS.glob(f"{extension}/*/_ffi*.so")) for extension in argon2id.by_builds()]
    assert len({library.read_bytes() for library in built}) == len(built)


@pytest.mark.parametrize(("flags", "loaded"), [("fpu sse sse2", ""), ("fpu avx avx2", "avx2")])
def test_builds_are_not_loaded_on_an_older_processor(tmp_path: Path, flags: str, loaded: str) -> None:
    # In a process of its own, whose /proc/cpuinfo is that of an older processor.
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    program = (
        "from pathlib import Path; from identity_platform.crypto import argon2id;"
        f" argon2id._PROCESSORS = Path({str(tmp_path / 'cpuinfo')!r});"
        " print(*argon2id.by_builds()); argon2id.fastest()"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("", loaded)
    assert done.stdout.strip() == loaded or not argon2id.by_builds()


def test_login_accepts_imported_hash_of_other_parameters(tenant: TestTenant, api: Api) -> None:
    for salt, lanes in ((b"s" * 48, 1), (b"s" * 16, 2)):
        person = tenant.register()
        encoded = hash_secret(PASSWORD.encode(), salt, 2, 19 * 1024, lanes, 32, Type.ID).decode()
        with in_tenant(tenant.id):
            EndUser.objects.filter(pk=person.id).update(password=f"argon2{encoded}")
        assert tenant.sign_in(person)
