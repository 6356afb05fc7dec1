"""A Valkey server for a single test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.identity_platform.api.private_valkey import Valkey


@pytest.fixture
def absent_valkey() -> Iterator[Valkey]:
    """A server that has not been started yet."""
    # Not below pytest's own directory: the name of a Unix socket has at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="vk"))
    server = Valkey(directory)
    yield server
    server.kill()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def valkey(absent_valkey: Valkey) -> Valkey:
    """A running server."""
    absent_valkey.start()
    return absent_valkey
