"""Sealed ZIP files: a tenant's backups, which open with its data key only."""

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from identity_platform.crypto import SealingWriter, unseal_file
from identity_platform.folders import give_to_owner_of_parent
from identity_platform.transfer.temporary_folder import temporary_folder
from tenants import job_steps


@contextmanager
def new_archive(file: Path, *, data_key: bytes, purpose: str) -> Iterator[zipfile.ZipFile]:
    """Yield an archive to fill. The file appears only when it is whole, with mode 0600. Raises OSError."""
    with temporary_folder(file.parent) as folder:
        partial = folder / "partial"
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
            sealed = SealingWriter(out, data_key=data_key, purpose=purpose)
            with sealed, zipfile.ZipFile(sealed, "w") as packed:
                yield packed
            # Before it replaces an older backup.
            out.flush()
            os.fsync(out.fileno())
        job_steps.completed("written out")
        partial.replace(file)
    give_to_owner_of_parent(file)


@contextmanager
def opened_archive(file: Path, folder: Path, *, data_key: bytes, purpose: str) -> Iterator[zipfile.ZipFile]:
    """Decrypt an archive into the folder and yield it. Raises SealBroken, zipfile.BadZipFile, OSError."""
    opened = folder / "opened"
    with file.open("rb") as source, opened.open("wb") as out:
        unseal_file(source, out, data_key=data_key, purpose=purpose)
    with zipfile.ZipFile(opened) as packed:
        yield packed
    opened.unlink()
