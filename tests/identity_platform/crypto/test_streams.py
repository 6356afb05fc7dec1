"""Sealed files: any size is restored, and an altered file does not open."""

import io
import os
from collections.abc import Callable

import pytest

from identity_platform.crypto import SealBroken, SealingWriter, new_data_key, unseal_file
from identity_platform.crypto.sealing import TAG_BYTES

KEY = new_data_key()
CHUNK = 1 << 20
HEADER = 32


def sealed(content: bytes, piece: int = 300_000) -> bytes:
    out = io.BytesIO()
    with SealingWriter(out, data_key=KEY, purpose="test") as file:
        for start in range(0, len(content), piece):
            file.write(content[start : start + piece])
    return out.getvalue()


def opened(content: bytes, *, key: bytes = KEY, purpose: str = "test") -> bytes:
    out = io.BytesIO()
    unseal_file(io.BytesIO(content), out, data_key=key, purpose=purpose)
    return out.getvalue()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7])
def test_unseal_file_restores_any_size(size: int) -> None:
    content = os.urandom(size)
    assert opened(sealed(content)) == content


def test_each_sealed_file_has_its_own_key() -> None:
    assert sealed(b"the same")[HEADER:] != sealed(b"the same")[HEADER:]


CUT, SECOND, THIRD = HEADER, HEADER + CHUNK + TAG_BYTES, HEADER + 2 * (CHUNK + TAG_BYTES)
ALTERED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "header only": lambda whole: whole[:HEADER],
    "cut at a chunk": lambda whole: whole[:THIRD],
    "cut in a chunk": lambda whole: whole[:-1],
    "longer": lambda whole: whole + b"x",
    "exchanged": lambda whole: whole[:CUT] + whole[SECOND:THIRD] + whole[CUT:SECOND] + whole[THIRD:],
    "one bit": lambda whole: whole[:100] + bytes([whole[100] ^ 1]) + whole[101:],
    "another salt": lambda whole: whole[: HEADER - 1] + bytes([whole[HEADER - 1] ^ 1]) + whole[HEADER:],
}


@pytest.mark.parametrize("how", ALTERED)
def test_unseal_file_rejects_altered_files(how: str) -> None:
    altered = ALTERED[how](sealed(os.urandom(3 * CHUNK + 7)))
    with pytest.raises(SealBroken):
        opened(altered)


def test_unseal_file_rejects_another_key_or_purpose() -> None:
    for other in ({"key": new_data_key()}, {"purpose": "other"}):
        with pytest.raises(SealBroken):
            opened(sealed(b"content"), **other)  # type: ignore[arg-type]


def half_written(out: io.BytesIO) -> None:
    with SealingWriter(out, data_key=KEY, purpose="test") as file:
        file.write(b"half")
        raise OSError("disk")


def test_unseal_file_rejects_a_half_written_file() -> None:
    out = io.BytesIO()
    with pytest.raises(OSError, match="disk"):
        half_written(out)
    with pytest.raises(SealBroken):
        opened(out.getvalue())
